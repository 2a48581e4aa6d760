"""The folder of a run's checkpoints: which one is good, which are kept, how a run resumes."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bigtrk.config import apply_overrides, parse
from bigtrk.console import say, warn_once
from bigtrk.disk.files import (
    atomic_path,
    by_numbers,
    disk_errors,
    seal,
    sync_folder,
    unlinked,
    write_atomically,
)
from bigtrk.errors import InputError, number_of
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.metrics import EpochRecord, MetricsRecord, StepRecord
from bigtrk.records.pipeline import check_is_run
from bigtrk.records.record import write_record
from bigtrk.records.run import BEST, Resumption, RunRecord
from bigtrk.records.run_folder import METRICS, RUN, read_metrics, read_run_record, write_run_record
from bigtrk.training.checkpoint.manifest import (
    FORMAT,
    LATEST,
    MANIFEST,
    Checkpoint,
    Progress,
    read_checkpoint,
)
from bigtrk.training.data.event_source import Events
from bigtrk.training.model_files import check_shapes
from bigtrk.training.run_folder import CHECKPOINTS
from bigtrk.training.settings import Configuration, warn_of_other_code

KEEP = 2  # the newest and one to fall back on
DAMAGED = "damaged-"
NAME = re.compile("step-[0-9]{8,18}")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Found:
    """The newest good checkpoint, and the faults of newer, damaged ones by name."""

    folder: Path
    checkpoint: Checkpoint
    damaged: dict[str, str]

    @property
    def complaint(self) -> str | None:
        """Returns a warning that names the damaged checkpoints; None if there are none."""
        if not self.damaged:
            return None
        said = "; ".join(f"{name} is damaged: {what}" for name, what in self.damaged.items())
        return f"{self.folder.parent}: {said}; the newest good one is {self.folder.name}"


def last_good(run: Path) -> Found:
    """Finds the newest undamaged checkpoint; InputError if there is none, or one is a link."""
    root, damaged = run / CHECKPOINTS, dict[str, str]()
    _check_links(root)
    for folder in reversed(_folders(root)):
        try:
            return Found(folder, read_checkpoint(folder), damaged)
        except InputError as error:
            damaged[folder.name] = str(error)
    if not damaged:
        raise InputError(
            f"{run}: holds no checkpoint to resume from; start a new run (model.init_from=RUN "
            f"starts it from the weights of a finished run)"
        )
    said = "; ".join(f"{name}: {damage}" for name, damage in damaged.items())
    raise InputError(f"{run}: all checkpoints are damaged ({said}); start a new run")


def has_any(run: Path) -> bool:
    """Whether a run has checkpoints, good or damaged."""
    return bool(_folders(run / CHECKPOINTS))


def read_newest(run: Path, read: Callable[[Found], Item]) -> Item:
    """Returns `read(found)` for the newest good checkpoint, even if the run goes on meanwhile."""
    while True:
        newest = _folders(run / CHECKPOINTS)[-1:]
        try:
            return read(last_good(run))
        except InputError:
            # The running training may have removed this checkpoint: try the next.
            if _folders(run / CHECKPOINTS)[-1:] == newest:
                raise


def take_last_good(run: Path) -> Found:
    """Finds a checkpoint as `last_good`. With a message, renames newer, damaged ones, and forgets a
    best epoch with a damaged checkpoint. InputError as `last_good`, or if the disk refuses.
    """
    found = last_good(run)
    if found.complaint:
        with disk_errors():
            for folder in map(found.folder.with_name, found.damaged):
                aside = folder.with_name(DAMAGED + folder.name)
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)
            _name_latest(found.folder)
        say(found.complaint)
    progress = found.checkpoint.progress
    best = progress.best.record if progress.best else None
    if best is None or best.checkpoint == found.folder.name:
        return found
    folder = found.folder.with_name(best.checkpoint)
    try:
        read_checkpoint(folder)
        return found
    except InputError as error:
        say(
            f"{folder}: the best checkpoint so far is damaged: {error}; the best of the coming "
            f"epochs replaces it"
        )
    assert progress.best is not None
    forgotten = replace(progress, best=replace(progress.best, best=None, before=None))
    return replace(found, checkpoint=replace(found.checkpoint, progress=forgotten))


def make_temporary(root: Path, name: str) -> None:
    """Makes the temporary folder for checkpoint `name`, and removes those left by a crash."""
    _check_links(root)
    with disk_errors():
        # No `parents=True`: a run's folder that was removed must not come back.
        root.mkdir(exist_ok=True)
        for old in root.glob(".step-*.tmp"):
            shutil.rmtree(old, ignore_errors=True)
        temporary_of(root, name).mkdir(exist_ok=True)  # one that could not be removed


def temporary_of(root: Path, name: str) -> Path:
    return root / f".{name}.tmp"


def commit(root: Path, checkpoint: Checkpoint) -> None:
    """Makes the temporary folder a checkpoint, names the best one, and removes old ones."""
    temporary, final = temporary_of(root, checkpoint.name), root / checkpoint.name
    with disk_errors():
        with atomic_path(temporary / MANIFEST) as manifest:
            manifest.write_bytes(seal({"format": FORMAT, **asdict(checkpoint)}))
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        sync_folder(root)
        _name_latest(final)
        name_best(root.parent, checkpoint.progress)
    best = checkpoint.progress.best
    kept = [] if best is None else best.kept(checkpoint.progress.step)
    for old in _folders(root)[:-KEEP]:
        if old.name in kept:
            continue
        try:
            shutil.rmtree(old)
        except OSError as error:  # such as of a file that is still open, on NFS
            warn_once(
                "old checkpoints",
                f"{old}: cannot be removed now ({error}); bigtrk tries again after each checkpoint",
            )


def name_best(run: Path, progress: Progress) -> None:
    """Writes the best epoch to a run's `best.json`; raises OSError if the disk refuses."""
    if progress.best is not None:
        write_record(run / BEST, progress.best.record)


def _name_latest(folder: Path) -> None:
    with atomic_path(folder.with_name(LATEST)) as latest:
        latest.write_text(json.dumps({"checkpoint": folder.name}) + "\n")


def _check_links(root: Path) -> None:
    """Refuses symbolic links, so that no checkpoints elsewhere are renamed or removed."""
    for path in (root, *root.glob("*")):
        unlinked(path)


def _folders(root: Path) -> list[Path]:
    """Lists the checkpoints' folders, oldest first."""
    found = (path for path in root.glob("step-*") if NAME.fullmatch(path.name) and path.is_dir())
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


# The settings that may change: any other change would make it another run. Engines and ranks may
# change: steps do not depend on them, and checkpoints are the same for all.
CHANGEABLE = (
    "training.epochs",
    "training.minutes",
    "training.best.patience",
    "training.checkpoint_every",
    "training.memory_gib",
    "training.routing",
    "training.spill",
    "training.spike_guard",
    "training.spike_threshold",
    "optimizer.",
    "engine.",
    "run.silent_seconds",
    "run.stalled_seconds",
    "profile",
)
FIXED = "optimizer.name"
# The entries that a resumed run's record keeps from its start, and those each resumption notes.
STARTED = ("bigtrk", "git", "software", "machine", "started", "code")
CONTINUED = ("launcher", "world_size", "engine_detail", "code")


def resumed_configuration(run: Path, overrides: Sequence[str]) -> Configuration:
    """Returns a run's configuration with `overrides`; InputError if one may not change."""
    check_is_run(run)
    content, source = read_run_record(run).config, str(run / RUN)
    if not content:
        raise InputError(f"{source}: holds no config to resume with; start a new run")
    for override in overrides:
        is_fixed = override.startswith(FIXED) or not override.startswith(CHANGEABLE)
        if not is_fixed or not _changes(content, override, source):
            continue
        if override.startswith(FIXED):
            raise InputError(
                f"{override}: a resumed run keeps its optimizer; leave it out, or finish this run "
                "and start a new one from its weights, with model.init_from=RUN"
            )
        named = [f"all of {key[:-1]}" if key.endswith(".") else key for key in CHANGEABLE]
        raise InputError(
            f"{override}: cannot change in a resumed run; start a new run, or change only "
            f"{', '.join(named)}"
        )
    return apply_overrides(Configuration, content, overrides, source)


def _changes(content: dict[str, Any], override: str, source: str) -> bool:
    """Whether `override` changes a setting in `content`; InputError if there is no such setting."""
    changed = apply_overrides(Configuration, deepcopy(content), [override], source)
    return changed != parse(Configuration, content, source)


def find_checkpoint(configuration: Configuration, ranks: Ranks, events: Events, run: Path) -> Found:
    """Finds the checkpoint to resume from; InputError if none fits or all is done. Collective."""
    warn_of_other_code(run, configuration)
    found = on_first_rank(take_last_good, run)
    checkpoint = found.checkpoint
    # A run that was killed after its last step still has to write its model.
    if read_run_record(run).ended is not None:
        _check_not_done(configuration, run, checkpoint.progress)
    check_shapes(configuration, str(run / RUN), checkpoint.shapes, str(found.folder))
    if checkpoint.data != events.training_digest:
        other = on_first_rank(_first_other, configuration, run, events, checkpoint.progress)
        raise InputError(
            f"{run}: its data folders hold other events than it was trained on: {other}; restore "
            "them, or start a new run"
        )
    if ranks.is_first:
        say(
            f"{run}: continuing from {found.folder.name}, written by {checkpoint.engine} on "
            f"{number_of(len(checkpoint.shards), 'rank')}"
        )
    return found


def _first_other(
    configuration: Configuration, run: Path, events: Events, progress: Progress
) -> str:
    """Describes the first event that is missing from the training data, or else is new."""
    steps = (line for _, line in read_metrics(run) if isinstance(line, StepRecord))
    trained = {name for step in steps for name in step.routes}
    names = [source.name for source in events.train]
    for gone in sorted(trained.difference(names), key=by_numbers)[:1]:
        return f"{gone} is missing"
    if not progress.epoch:
        return "which ones is not known before the end of its first epoch"
    for new in [name for name in names if name not in trained][:1]:
        held = configuration.data.validation
        last = f" (data.validation={held} holds the last back)" if isinstance(held, int) else ""
        return f"{new} was not among them{last}"
    return "their names are the same, but not their graphs"


def _check_not_done(configuration: Configuration, run: Path, progress: Progress) -> None:
    if progress.epoch >= configuration.training.epochs:
        raise InputError(
            f"{run}: has trained {number_of(progress.epoch, 'epoch')} already; add "
            f"training.epochs={progress.epoch + 1} or more"
        )
    best = progress.best
    if best and best.is_over(configuration.training.best.patience):
        raise InputError(
            f"{run}: ended after {number_of(best.waited, 'epoch')} without a better one; to go on, "
            f"set training.best.patience={best.waited + 1} or more, or null"
        )


def continue_record(run: Path, record: RunRecord, progress: Progress) -> None:
    """Adds the resumption to a run's record, and drops the metrics after its checkpoint, since
    those steps are computed again. Raises InputError if a record is broken, or the disk refuses.
    """
    before = read_run_record(run)
    resumed = Resumption(step=progress.step, **{name: getattr(record, name) for name in CONTINUED})
    known = {name: getattr(before, name) for name in STARTED}
    known["resumed"] = (*before.resumed, resumed)
    steps: set[int] = set()

    def write_kept(out: Path) -> None:
        with out.open("wb") as kept:
            for raw, line in read_metrics(run):
                if _is_before(line, progress) and raw.endswith(b"\n"):
                    kept.write(raw)
                    if isinstance(line, StepRecord):
                        steps.add(line.step)

    with disk_errors():
        if (run / METRICS).exists():
            write_atomically(run / METRICS, write_kept)
        write_run_record(run, record.model_copy(update=known))
        name_best(run, progress)
    if len(steps) < progress.step:
        say(
            f"{run / METRICS}: holds no records of {progress.step - len(steps)} of the "
            f"{progress.step} steps before the checkpoint; reports lack them, the model does not"
        )


def _is_before(record: MetricsRecord, progress: Progress) -> bool:
    """Whether a record was complete before the checkpoint: a finished epoch, or an earlier step."""
    if isinstance(record, EpochRecord):
        return record.epoch < progress.epoch
    return record.step < progress.step
