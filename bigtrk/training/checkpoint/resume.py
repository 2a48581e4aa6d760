"""Resuming a run: its configuration, its checkpoint and its record."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from bigtrk.config import Settings, apply_overrides, parse
from bigtrk.console import say
from bigtrk.disk.files import disk_errors, read_json, write_atomically, write_json
from bigtrk.disk.json_lines import Line, read_lines
from bigtrk.errors import InputError
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.checkpoint.checkpointer import find
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.progress import Progress
from bigtrk.training.data.events import Events
from bigtrk.training.model_files import check_shapes
from bigtrk.training.run_folder import METRICS, RUN
from bigtrk.training.settings import Configuration

# The settings that may change: any other change would make it another run. Engines and ranks may
# change: steps do not depend on them, and checkpoints are the same for all.
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


class _Begun(Settings):
    """`run.json`, as far as resuming needs it. resumed: its earlier continuations."""

    model_config = ConfigDict(extra="allow")

    config: dict[str, Any]
    resumed: tuple[dict[str, Any], ...] = ()


class _OfEpoch(Settings):
    """An epoch's line of `metrics.jsonl`, as far as resuming needs it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    epoch: int


class _OfStep(Settings):
    """A step's line, or that of a validation on the way."""

    model_config = ConfigDict(extra="ignore", strict=True)

    kind: Literal["step", "validation"]
    step: int


def resumed_configuration(run: Path, overrides: Sequence[str]) -> Configuration:
    """Returns the configuration a run was started with, with `overrides` of what may change.

    Raises:
        InputError: `run` holds no run, or an override would make it another one.
    """
    content = _begun(run).config
    for override in overrides:
        if not override.startswith(CHANGEABLE):
            raise InputError(
                f"{override}: a resumed run takes changes of {', '.join(CHANGEABLE)} only; "
                f"start a new run for others"
            )
    return apply_overrides(Configuration, content, overrides, str(run / RUN))


def _begun(run: Path) -> _Begun:
    content = read_json(run / RUN)
    if not isinstance(content, dict) or "config" not in content:
        raise InputError(f"{run / RUN}: not the record of a bigtrk run")
    return parse(_Begun, content, str(run / RUN))


def find_checkpoint(configuration: Configuration, ranks: Ranks, events: Events, run: Path) -> Found:
    """Finds the checkpoint to resume from. Collective.

    Raises:
        InputError: the run has no good checkpoint, was trained on other events, or is done.
    """
    found = find(run)
    checkpoint = found.checkpoint
    progress, epochs = checkpoint.progress, configuration.training.epochs
    if progress.epoch >= epochs:
        raise InputError(
            f"{run}: {progress.epoch} epochs are done already; add "
            f"training.epochs={progress.epoch + 1} or more"
        )
    check_shapes(configuration, str(run / RUN), checkpoint.shapes, str(found.folder))
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


def check_place(found: Found, per_epoch: int) -> None:
    """Checks that the checkpoint's place exists in a run of `per_epoch` steps an epoch.

    Raises:
        InputError: it does not.
    """
    at = found.checkpoint.progress
    if not at.fits(per_epoch):
        raise InputError(
            f"{found.folder}: step {at.step} (step {at.cursor} of epoch {at.epoch}; "
            f"{at.totals.steps} done, {len(at.totals.left_out)} left out) is no place in a run of "
            f"{per_epoch} steps an epoch; remove this checkpoint"
        )


def continue_record(run: Path, facts: dict[str, Any], progress: Progress) -> None:
    """Writes how a run continues, and drops from its record what came after its checkpoint.

    Steps computed after the checkpoint will be computed again; a crash may also have left half a
    line.

    Raises:
        InputError: the record is not one of a bigtrk run (names the file, and the line in it), or
            the disk refuses.
    """
    before = _begun(run)
    resumed = [*before.resumed, {"step": progress.step, **_where(facts)}]
    with disk_errors():
        if (run / METRICS).exists():
            write_atomically(run / METRICS, lambda path: _write_kept(run / METRICS, progress, path))
        write_json(run / RUN, {**before.model_dump(), **facts, "resumed": resumed})


def _write_kept(record: Path, progress: Progress, out: Path) -> None:
    with out.open("wb") as kept:
        kept.writelines(_kept(record, progress))


def _kept(record: Path, progress: Progress) -> Iterator[bytes]:
    for line in read_lines(record):
        if _is_before(line, progress) and line.raw.endswith(b"\n"):
            yield line.raw


def _is_before(line: Line, progress: Progress) -> bool:
    """Says whether a line comes before the checkpoint; that of an unfinished epoch does not."""
    if line.content.get("kind") == "epoch":
        return parse(_OfEpoch, line.content, line.place).epoch < progress.epoch
    return parse(_OfStep, line.content, line.place).step < progress.step


def _where(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in ("launcher", "world_size", "engine_detail")}
