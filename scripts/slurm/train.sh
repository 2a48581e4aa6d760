# Sourced by the batch files: what is the same on every SLURM cluster.
# shellcheck shell=bash

# train ARGUMENT...: run `bigtrk train` under srun, one rank per task, in runs/JOBID. When SLURM
# signals that the time limit is near, give the training 45 s to save, and requeue the job. A
# requeued job continues the run.
#
# BIGTRK_STAGE="graphs sectors" first copies these folders to each node's /tmp (or BIGTRK_LOCAL)
# and trains on the copies.
#
# If BIGTRK_ARRAY_RUN and BIGTRK_ARRAY_SEED are set (by bigtrk scale --slurm), task N of a job array
# trains BIGTRK_ARRAY_RUN-N with the seed BIGTRK_ARRAY_SEED + N - 1.
train() {
    local run=runs/$SLURM_JOB_ID local_data=${BIGTRK_LOCAL:-/tmp}/bigtrk-$SLURM_JOB_ID
    local arguments=("$@" "run.folder=$run") status=0
    if [[ ${BIGTRK_ARRAY_RUN:-} ]]; then
        run=$BIGTRK_ARRAY_RUN-$SLURM_ARRAY_TASK_ID
        arguments=("$@" "training.seed=$((BIGTRK_ARRAY_SEED + SLURM_ARRAY_TASK_ID - 1))"
            "run.folder=$run")
    fi
    # The signal may come between the training's end and the job's.
    if [[ -e $run/model.safetensors ]]; then
        echo "$run is trained"
        return
    fi
    if [[ ${BIGTRK_STAGE:-} ]]; then
        stage "$local_data"
        arguments+=("data.train=[$(staged "$local_data")]")
    fi
    if [[ -e $run/checkpoints/latest.json ]]; then
        arguments=(--resume "$run")
    elif [[ -e $run ]]; then
        mv "$run" "$run.ended-before-its-first-checkpoint-${SLURM_RESTART_COUNT:-0}"
    fi
    train_until_limit "${arguments[@]}" || status=$?
    [[ ! ${BIGTRK_STAGE:-} ]] || on_each_node rm -rf "$local_data"
    return "$status"
}

train_until_limit() {
    local training='' status=0 near='' early
    trap 'near=yes; [[ ! $training ]] || kill -USR1 "$training"' USR1
    # srun no longer takes the cores of a task from the job, since SLURM 22.05.
    SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK srun --kill-on-bad-exit=1 bigtrk train "$@" &
    # One command, so that no trap comes between: pass on a signal that came before it, once the new
    # process is srun and not bash, whose trap would swallow it.
    training=$! early=$near
    [[ ! $early ]] || { sleep 1 && kill -USR1 "$training"; }
    wait "$training" || status=$?
    [[ $near ]] || return "$status"
    echo "The time limit is near: saving"
    await "$training" 45
    if kill -0 "$training" 2>/dev/null; then
        echo "Requeueing without what came after the last checkpoint"
        scontrol requeue "$SLURM_JOB_ID" # ends the training
        wait "$training"
        return
    fi
    status=0
    wait "$training" || status=$?
    # 75: it saved. 128 + USR1: the signal came so early that the training could not save yet.
    if ((status == 75 || status == 128 + $(kill -l USR1))); then
        echo "Requeueing"
        scontrol requeue "$SLURM_JOB_ID"
    fi
    return "$status"
}

# await PROCESS SECONDS: wait until the process has ended, but no longer than this.
await() {
    local seconds
    for ((seconds = 0; seconds < $2; seconds++)); do
        kill -0 "$1" 2>/dev/null || break
        sleep 1
    done
}

# A requeued job copies again over its earlier copies. The name is easily guessed: if another user
# has made a folder or a link of this name, the job ends.
stage() {
    # shellcheck disable=SC2016  # expanded on the nodes
    on_each_node bash -c 'mkdir -p -m 700 "$1" && [[ -O $1 && ! -L $1 ]]' stage "$1" || {
        echo "$1 is not a folder of this user on each node; name another place in BIGTRK_LOCAL" >&2
        return 1
    }
    # shellcheck disable=SC2086  # several folders
    on_each_node cp -r $BIGTRK_STAGE "$1"
}

# The copies, separated by commas.
staged() {
    local folder copies=()
    for folder in $BIGTRK_STAGE; do copies+=("$1/$(basename "$folder")"); done
    (IFS=, && echo "${copies[*]}")
}

on_each_node() { srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 "$@"; }
