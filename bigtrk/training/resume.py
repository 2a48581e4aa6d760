"""Taking a run up again: with what configuration, and from what record."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigtrk.config import apply_overrides
from bigtrk.errors import InputError
from bigtrk.files import read_json, write_atomically, write_json
from bigtrk.training.checkpoint import Progress, latest_progress
from bigtrk.training.run_folder import METRICS, RUN
from bigtrk.training.settings import Configuration

# What may change: anything else would make it another run.
CHANGEABLE = ("training.epochs", "training.minutes", "training.spike_", "optimizer.", "profile")


def resumed_configuration(run: Path, overrides: Sequence[str]) -> Configuration:
    """The configuration a run was started with, with `overrides` of what may change.

    Raises:
        InputError: `run` holds no run or no checkpoint, an override would make it another run, or
            as many epochs are done already.
    """
    content = read_json(run / RUN)
    if not isinstance(content, dict) or "config" not in content:
        raise InputError(f"{run / RUN}: not the record of a bigtrk run")
    for override in overrides:
        if not override.startswith(CHANGEABLE):
            raise InputError(
                f"{override}: a resumed run takes changes of {', '.join(CHANGEABLE)} only; "
                f"start a new run for others"
            )
    configuration = apply_overrides(Configuration, content["config"], overrides, str(run / RUN))
    done = latest_progress(run).epoch
    if done >= configuration.training.epochs:
        raise InputError(
            f"{run}: {done} epochs are done already; add training.epochs={done + 1} or more"
        )
    return configuration


def continue_record(run: Path, configuration: dict[str, Any]) -> None:
    """Write the configuration a run continues with, and drop what came after its checkpoint.

    Steps computed after the checkpoint will be computed again; a crash may also have left half a
    line.
    """
    write_json(run / RUN, {**read_json(run / RUN), "config": configuration})
    if not (run / METRICS).exists():
        return
    progress = latest_progress(run)
    whole = [line for line in (run / METRICS).read_text().splitlines(keepends=True) if "\n" in line]
    kept = "".join(line for line in whole if _is_before(json.loads(line), progress))
    write_atomically(run / METRICS, lambda path: path.write_text(kept))


def _is_before(record: dict[str, Any], progress: Progress) -> bool:
    return bool(record["epoch"] < progress.epoch)
