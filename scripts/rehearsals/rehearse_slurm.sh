#!/bin/bash
# Rehearse scripts/slurm/generic.sbatch, unchanged but for the partition's name, on a SLURM cluster
# of one controller and two nodes made of network namespaces, with a time limit that the training
# exceeds: the job has to requeue itself and resume. It trains on staged copies of the sectors.
# Then compare the losses with the single-host run.
#
#   scripts/rehearsals/rehearse_slurm.sh [--epochs 100] [--install]
#
# Needs root on Linux, and munged, slurmctld, slurmd and ip; --install gets what is missing with
# apt-get. The cluster's keys, configuration and state are its own; all is removed at the end.
# The last line is JSON: {"nodes", "ranks", "steps", "max_relative_difference", "seconds"}.
source "$(dirname "${BASH_SOURCE[0]}")/rehearsal.sh"
source "$checkout/scripts/rehearsals/rehearsal_hosts.sh"

nodes=2
limit_minutes=2
epochs=100
while (($#)); do
    case $1 in
        --epochs) epochs=${2:?--epochs needs a number}; shift ;;
        --install) install=yes ;;
        *) fail "unknown option $1; known: --epochs N, --install" ;;
    esac
    shift
done
need_root
need munged=munge slurmctld=slurmctld slurmd=slurmd sbatch=slurm-client ip=iproute2
[[ -d $checkout/.venv ]] || fail "the batch file activates .venv, which $checkout lacks; run 'make install'"

# No cgroups and no accounting; a requeued job may start again at once (cred_expire).
write_slurm() {
    mkdir -p "$work/munge" "$work/slurm"
    chmod 755 "$work" "$work/munge"
    (umask 077 && head --bytes 128 /dev/urandom >"$work/munge/key")
    # slurmd looks for control groups even where nothing uses them, and version 1 asks for none.
    echo CgroupPlugin=cgroup/v1 >"$work/slurm/cgroup.conf"
    cat >"$work/slurm/slurm.conf" <<END
ClusterName=rehearsal
SlurmctldHost=head
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket,cred_expire=10
StateSaveLocation=$work/slurm/state
SlurmctldPidFile=$work/slurm/head.pid
SlurmctldLogFile=$work/slurm/head.log
SlurmdSpoolDir=$work/slurm/%n
SlurmdPidFile=$work/slurm/%n.pid
SlurmdLogFile=$work/slurm/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
NodeName=node[1-$nodes] CPUs=64
PartitionName=rehearsal Nodes=ALL DefaultTime=$limit_minutes MaxTime=$limit_minutes
END
}

start_slurm() {
    local name
    munged --foreground --key-file "$work/munge/key" --socket "$work/munge/socket" \
        --pid-file "$work/munge/pid" --log-file "$work/munge/log" \
        --seed-file "$work/munge/seed" >&2 &
    until [[ -S $work/munge/socket ]]; do sleep 0.2; done
    on head slurmctld -D >&2 &
    for name in "${names[@]}"; do on "$name" slurmd -D -N "$name" >&2 & done
    until [[ $(on head sinfo --noheader --format %T) == idle ]]; do sleep 1; done
}

# The job's state, such as RUNNING; its number of restarts.
job() { on head scontrol show job "$1" | grep --only-matching --perl-regexp "$2=\K\S+"; }

await_job() {
    local state
    while state=$(job "$1" JobState); [[ $state != COMPLETED ]]; do
        case $state in
            PENDING | CONFIGURING | RUNNING | SIGNALING | COMPLETING | REQUEUED) sleep 2 ;;
            *) cat bigtrk-*.log >&2; fail "job $1 is $state" ;;
        esac
    done
}

mapfile -t names < <(seq --format 'node%g' "$nodes")
make_events 4
# Over hundreds of steps Adam magnifies rounding: at a rate of 1e-3, weights that start off by 1e-7
# make losses that are off by 6e-4 after 20 steps. At 2e-6 they stay together; the loss still falls
# by 0.7 % in 100 epochs, so a run that lost its weights on the way would show.
settings+=("training.epochs=$epochs" optimizer.lr=0.000002)
train_on_one_host

write_slurm
export SLURM_CONF=$work/slurm/slurm.conf BIGTRK_HOME=$checkout BIGTRK_STAGE=sectors BIGTRK_LOCAL=$work/local
start_hosts head "${names[@]}"
start_slurm
start=$SECONDS
id=$(on head sbatch --parsable --partition=rehearsal "$checkout/scripts/slurm/generic.sbatch" \
    "${settings[@]}")
attend await_job "$id"
seconds=$((SECONDS - start))
grep --extended-regexp 'parameters|stopped after|continuing|Requeueing|model and record' "bigtrk-$id.log" >&2
restarts=$(job "$id" Restarts)
((restarts > 0)) || fail "the job ended before the time limit of $limit_minutes minutes; give more --epochs"
say "the job requeued itself $restarts time(s)"
compare "runs/$id" "$nodes" "$seconds"
