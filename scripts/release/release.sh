#!/bin/bash
# Builds bigtrk's wheel and sdist, then tries the wheel as a newcomer does on a machine without a C
# compiler: in a new environment, from an empty folder. It ends at the first failure.
#
#   scripts/release/release.sh [DIST]    # the folder of both files, dist by default
#
# `make release` installs `build` and `twine` first. PYTHON makes the environment, python3 by default.

set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
tools=$checkout/.venv/bin
python=$(command -v "${PYTHON:-python3}")
mkdir -p "${1:-dist}"
dist=$(cd "${1:-dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { printf '\n== %s\n' "$*"; }

fail() {
    echo "release: $*" >&2
    exit 1
}

# Links to the system's programs, all but compilers of C and C++.
programs_without_compilers() {
    local program
    mkdir "$1"
    for program in /usr/sbin/* /usr/bin/* /sbin/* /bin/*; do
        case ${program##*/} in
        *gcc* | *g++* | *c++* | *clang* | *cc | c89* | c99* | icx | icpx) ;;
        *) [[ -e $1/${program##*/} ]] || ln -s "$program" "$1" ;;
        esac
    done
}

# Runs a command in the new environment, as a shell that knows nothing of the checkout.
try() {
    step "$*"
    (cd "$work/empty" && env -i HOME="$work/home" LANG=C.UTF-8 PATH="$work/env/bin:$work/programs" "$@") \
        2>&1 | tee "$work/printed"
}

# The last command printed exactly one line with this text.
said_once() {
    local lines
    lines=$(grep -c "$1" "$work/printed") || true
    [[ $lines == 1 ]] || fail "'$1' is in $lines lines of what was printed, not in one"
}

step "Build"
rm -f "$dist"/bigtrk-*
(cd "$checkout" && "$tools/python" -m build --no-isolation --outdir "$dist")
"$tools/python" -m twine check --strict "$dist"/bigtrk-*
wheels=("$dist"/bigtrk-*.whl) sdists=("$dist"/bigtrk-*.tar.gz)
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$checkout/bigtrk/__init__.py")
[[ ${wheels[*]} == */bigtrk-$version-py3-none-any.whl ]] || fail "not version $version: ${wheels[*]}"
in_wheel=$("$python" -m zipfile -l "${wheels[0]}") in_sdist=$(tar -tzf "${sdists[0]}")
for licence in LICENSE licenses/plotly.txt; do
    grep -q "dist-info/licenses/$licence" <<<"$in_wheel" || fail "$licence is not in the wheel"
    grep -q "/$licence\$" <<<"$in_sdist" || fail "$licence is not in the sdist"
done

step "Install the wheel where there is no compiler"
programs_without_compilers "$work/programs"
mkdir "$work/empty" "$work/home"
"$python" -m venv "$work/env"
# pip keeps its configuration and cache; torch comes as `make install` gets it.
install() {
    env -u CC -u CXX -u PYTHONPATH PATH="$work/env/bin:$work/programs" \
        python -m pip install --quiet -c "$checkout/constraints.txt" "$@"
}
install torch==2.13.0
install "${wheels[0]}"

try bigtrk --version
[[ $(<"$work/printed") == "bigtrk $version" ]] || fail "not version $version"
try python -c 'import bigtrk; print(bigtrk.__file__)'
[[ $(<"$work/printed") == "$work/env/"* ]] || fail "bigtrk is not that of the new environment"
for compiler in cc gcc clang c++; do
    [[ ! -e $work/env/bin/$compiler && ! -e $work/programs/$compiler ]] || fail "$compiler is there"
done
try bigtrk doctor

try bigtrk demo demo
said_once "no C compiler"
grep -q 'class="plot"' "$work/empty/demo/report.html" || fail "the demo's report has no plot"

try torchrun --standalone --nproc-per-node 2 -m bigtrk train data.train=demo/sectors \
    data.validation=2 model.hidden=16 model.layers=2 training.epochs=2 run.folder=run
said_once "no C compiler"
grep -q "epoch 2/2" "$work/printed" || fail "the training did not reach its last epoch"
grep -q '"world_size": 2' "$work/empty/run/run.json" || fail "the training had not two ranks"

try bigtrk reconstruct demo/pipeline demo/hits tracks
tracks=("$work/empty/tracks"/*.parquet)
[[ ${#tracks[@]} == 2 && -s ${tracks[0]} ]] || fail "the two events have no tracks"

try bigtrk report run --html report.html
grep -q 'class="plot"' "$work/empty/report.html" || fail "the report has no plot"

step "bigtrk $version works without compiler and without checkout"
printf '%s\n' "${wheels[0]}" "${sdists[0]}"
