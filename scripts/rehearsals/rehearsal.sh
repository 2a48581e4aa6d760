# Sourced by the rehearsals: what they need, their events, the single-host run, the comparison.
# Sets `checkout` and `work`, a temporary folder that is removed at the end.
# shellcheck shell=bash
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[[ -d $checkout/.venv/bin ]] && PATH=$checkout/.venv/bin:$PATH
work=$(mktemp --directory --tmpdir bigtrk-rehearsal.XXXXXX)
install=

say() { echo "rehearsal: $*" >&2; }
fail() {
    say "$*"
    exit 2
}

# Called once, at the end or when the script is stopped; a rehearsal adds to `cleanups`.
cleanups=()
clean_up() {
    local status=$? i running
    trap - EXIT INT TERM HUP
    for ((i = ${#cleanups[@]} - 1; i >= 0; i--)); do "${cleanups[i]}" || true; done
    mapfile -t running < <(jobs -p)
    ((${#running[@]} == 0)) || kill "${running[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# attend COMMAND...: run it so that a signal to this script is acted upon at once, not after it.
attend() {
    "$@" &
    wait $!
}

# need PROGRAM=PACKAGE...: every program, or how to get it; installs only with --install.
need() {
    local pair packages=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || packages+=("${pair#*=}")
    done
    ((${#packages[@]})) || return 0
    [[ $install ]] || fail "needs ${packages[*]}; run 'apt-get install ${packages[*]}', or give --install"
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
}

need_root() {
    ((EUID == 0)) || fail "needs root, to make hosts out of network namespaces"
}

# make_events RANKS: simulated events, small enough for many ranks on few cores, in RANKS sectors.
# Wedges, since METIS finds cuts without a halo in graphs as sparse as these.
make_events() {
    cd "$work"
    attend bigtrk simulate events --events 5 --particles 400 >&2
    attend bigtrk build events graphs >&2
    attend python -m partition graphs sectors --parts "$1" --method wedges >&2
}

# What all runs share. Every event is in sectors, so every step exchanges halos over the network.
settings=(
    'data.train=sectors' data.validation=1 target.hits_min=3
    model.hidden=16 model.layers=3 training.events_per_step=2
)

# train_on_one_host SETTING...: the run to compare with, in one process.
train_on_one_host() {
    attend python "$checkout/bigtrk/train.py" "${settings[@]}" "$@" run.folder=one-host >&2
}

# compare RUN NODES SECONDS: the last two lines of a rehearsal.
compare() {
    python "$checkout/scripts/rehearsals/compare_losses.py" one-host "$1" --nodes "$2" --seconds "$3"
}
