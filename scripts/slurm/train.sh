# Sourced by the batch files: what is the same on every SLURM cluster.
# shellcheck shell=bash

# train ARGUMENT...: run bigtrk/train.py under srun, one rank per task, as run runs/JOBID. When
# SLURM's signal says that the time limit is near, requeue the job; what an earlier part of the job
# has trained is continued from its last checkpoint, written at the end of each epoch.
train() {
    local run=runs/$SLURM_JOB_ID arguments training status=0
    arguments=("$@" "run.folder=$run")
    if [[ -e $run/checkpoints/latest.json ]]; then
        arguments=(--resume "$run")
    elif [[ -e $run ]]; then
        mv "$run" "$run.ended-before-its-first-checkpoint-$SLURM_RESTART_COUNT"
    fi
    trap 'echo "The time limit is near: requeueing $run"; scontrol requeue "$SLURM_JOB_ID"' USR1
    # srun no longer takes the cores of a task from the job, since SLURM 22.05.
    SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK srun --kill-on-bad-exit=1 \
        python "$BIGTRK_HOME/bigtrk/train.py" "${arguments[@]}" &
    training=$!
    # A trapped signal ends the first `wait`; the ranks train on until the requeue ends them.
    wait "$training" || status=$?
    if ((status > 128)); then
        status=0
        wait "$training" || status=$?
    fi
    return "$status"
}
