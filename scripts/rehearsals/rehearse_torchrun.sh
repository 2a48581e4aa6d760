#!/bin/bash
# Rehearse `torchrun` on two nodes that meet by rendezvous: two agents on this machine, one rank
# each; then compare the losses with the single-host run. Needs nothing but bigtrk.
#
#   scripts/rehearsals/rehearse_torchrun.sh
#
# The last line is JSON: {"nodes", "ranks", "steps", "max_relative_difference", "seconds"}.
source "$(dirname "${BASH_SOURCE[0]}")/rehearsal.sh"
(($# == 0)) || fail "unknown option $1; there are none"

make_events 2
settings+=(training.epochs=3)
train_on_one_host

port=$(python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
start=$SECONDS
agents=()
for _ in 1 2; do
    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id "rehearsal-$$" \
        --rdzv-endpoint "localhost:$port" "$checkout/bigtrk/train.py" \
        "${settings[@]}" run.folder=two-agents >&2 &
    agents+=($!)
done
for agent in "${agents[@]}"; do wait "$agent"; done
compare two-agents 2 $((SECONDS - start))
