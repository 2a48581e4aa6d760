#!/bin/bash
# A scaling series: a job array per number of ranks, a task per repeat. Submit it from the folder
# that the paths below start from:
#
#   export BIGTRK_HOME=$HOME/bigtrk    # the checkout, installed into its .venv
#   bash FILE --partition=gpu --gpus-per-node=4      # any options of sbatch
#
# BIGTRK_BATCH names another batch file. Trained runs stay as they are, others go on from their last
# checkpoint. Afterwards, and in between: bigtrk report SERIES --html report.html

set -euo pipefail
batch=${BIGTRK_BATCH:-${BIGTRK_HOME:?names the checkout of bigtrk}/scripts/slurm/generic.sbatch}
options=("$@")

# array REPEATS SEED RANKS NODES RANKS_PER_NODE RUN ARGUMENT...: task N trains RUN-N with the seed
# SEED + N - 1
array() {
    BIGTRK_ARRAY_RUN=$6 BIGTRK_ARRAY_SEED=$2 sbatch --array="1-$1" \
        --job-name="${6##*/}" --ntasks="$3" --nodes="$4" --ntasks-per-node="$5" \
        "${options[@]}" "$batch" "${@:7}"
}
