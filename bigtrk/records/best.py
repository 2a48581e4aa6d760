"""`best.json`: the epoch of a run that is the best in a metric, and its checkpoint."""

from pathlib import Path
from typing import ClassVar, Literal

from bigtrk.records.quantities import Number, Place, Text
from bigtrk.records.record import FileRecord, read_record, write_record

BEST = "best.json"
BEST_WEIGHTS = "best.safetensors"  # of that epoch, once the run has ended


class BestRecord(FileRecord):
    """The best epoch so far, counted from 0: the metric's value, and the name of the checkpoint
    that was written at its end, after `step` steps.
    """

    made_again: ClassVar[str] = "resume the run, which writes it anew"

    format: Literal[1] = 1
    metric: Text
    value: Number
    epoch: Place
    step: Place
    checkpoint: Text


def write_best(run: Path, record: BestRecord | None) -> None:
    """Writes `best.json` into a run's folder, atomically; None: there is no best epoch yet.

    Raises:
        OSError: the disk refuses.
    """
    if record is None:
        (run / BEST).unlink(missing_ok=True)
    else:
        write_record(run / BEST, record)


def read_best(run: Path) -> BestRecord | None:
    """Reads the best epoch of a run; None where it keeps none.

    Raises:
        InputError: the file is broken or incomplete.
    """
    return read_record(BestRecord, run / BEST) if (run / BEST).exists() else None
