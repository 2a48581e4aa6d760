"""Taking a run up again: with what configuration, from what checkpoint and what record."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigtrk.config import apply_overrides
from bigtrk.console import say
from bigtrk.errors import InputError
from bigtrk.files import disk_errors, read_json, write_atomically, write_json
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.checkpoint import find
from bigtrk.training.checkpoint_folder import Found
from bigtrk.training.events import Events
from bigtrk.training.progress import Progress
from bigtrk.training.run_folder import METRICS, RUN
from bigtrk.training.settings import Configuration

# What may change: anything else would make it another run.
# Engines and ranks may: steps do not depend on them, and checkpoints are the same for all.
CHANGEABLE = (
    "training.epochs",
    "training.minutes",
    "training.checkpoint_every",
    "training.memory_gib",
    "training.spike_",
    "optimizer.",
    "engine.",
    "run.silent_seconds",
    "run.stalled_seconds",
    "profile",
)


def resumed_configuration(run: Path, overrides: Sequence[str]) -> Configuration:
    """The configuration a run was started with, with `overrides` of what may change.

    Raises:
        InputError: `run` holds no run, or an override would make it another one.
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
    return apply_overrides(Configuration, content["config"], overrides, str(run / RUN))


def find_checkpoint(configuration: Configuration, ranks: Ranks, events: Events, run: Path) -> Found:
    """The checkpoint to go on from. Collective.

    Raises:
        InputError: it has no good checkpoint, was trained on other events, or is done.
    """
    found = find(run)
    checkpoint = found.checkpoint
    progress, epochs = checkpoint.progress, configuration.training.epochs
    if progress.epoch >= epochs:
        raise InputError(
            f"{run}: {progress.epoch} epochs are done already; add "
            f"training.epochs={progress.epoch + 1} or more"
        )
    if checkpoint.data != events.training_digest:
        raise InputError(
            f"{run}: was trained on other events than its data folders hold now, so that what is "
            f"left of an epoch is not known; restore the folders, or start a new run"
        )
    if ranks.is_first:
        say(
            f"{run}: continuing from {found.folder.name}, written by {checkpoint.engine} on "
            f"{len(checkpoint.shards)} rank(s)"
        )
    return found


def continue_record(run: Path, facts: dict[str, Any], progress: Progress) -> None:
    """Write how a run continues, and drop from its record what came after its checkpoint.

    Steps computed after the checkpoint will be computed again; a crash may also have left half a
    line.

    Raises:
        InputError: the disk refuses.
    """
    before = read_json(run / RUN)
    resumed = [*before.get("resumed", []), {"step": progress.step, **_where(facts)}]
    with disk_errors():
        write_json(run / RUN, {**before, **facts, "resumed": resumed})
        if (run / METRICS).exists():
            _drop_after(progress, run / METRICS)


def _drop_after(progress: Progress, metrics: Path) -> None:
    whole = [line for line in metrics.read_text().splitlines(keepends=True) if "\n" in line]
    kept = "".join(line for line in whole if _is_before(json.loads(line), progress))
    write_atomically(metrics, lambda path: path.write_text(kept))


def _where(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in ("launcher", "world_size", "engine_detail")}


def _is_before(record: dict[str, Any], progress: Progress) -> bool:
    """Of steps and validations on the way by their step; an unfinished epoch's record is not."""
    if record["kind"] == "epoch":
        return bool(record["epoch"] < progress.epoch)
    return bool(record["step"] < progress.step)
