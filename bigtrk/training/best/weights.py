"""The weights of the best epoch, from the checkpoint that is kept of it."""

from pathlib import Path

from torch import Tensor

from bigtrk.console import complain
from bigtrk.errors import InputError
from bigtrk.parallel.engines.pieces import AVERAGE
from bigtrk.training.best.best import Best
from bigtrk.training.checkpoint.files import read_checkpoint
from bigtrk.training.checkpoint.state import stored_weights
from bigtrk.training.run_folder import CHECKPOINTS


def best_weights(run: Path, search: Best | None) -> dict[str, Tensor] | None:
    """Reads the weights that made the best epoch of a run the best: averaged ones, where epochs are
    judged by these. None where there is no such epoch, or its checkpoint is damaged, which is said.
    """
    if search is None or search.record is None:
        return None
    folder = run / CHECKPOINTS / search.record.checkpoint
    try:
        checkpoint = read_checkpoint(folder)
    except InputError as error:
        complain(f"{folder}: the best checkpoint is damaged: {error}; its weights are left out")
        return None
    judged_averaged = checkpoint.averaged and search.metric != "train_loss"
    return stored_weights(folder, checkpoint, AVERAGE if judged_averaged else "weight")
