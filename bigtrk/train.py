"""Train a track-finding graph network: the same under deepspeed, torchrun, srun and python.

deepspeed --num_gpus 2 bigtrk/train.py bigtrk.yaml engine.name=deepspeed
torchrun --nproc-per-node 2 bigtrk/train.py training.epochs=5
python bigtrk/train.py --resume runs/0001

Launchers start this file; bigtrk/program.py is the program. No module imports this one: it would
take the place of the function `bigtrk.train`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts a script's folder on the search path: the packages in it (models, events, config)
    # would hide users' modules of such names.
    own = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != own]
    from bigtrk.program import main

    main()
