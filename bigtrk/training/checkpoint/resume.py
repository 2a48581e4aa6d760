"""Resuming a run: its configuration, its checkpoint and its record."""

from collections.abc import Sequence
from pathlib import Path

from bigtrk.config import apply_overrides
from bigtrk.console import say
from bigtrk.disk.files import disk_errors, write_atomically
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.metrics import EpochRecord, MetricsRecord, StepRecord
from bigtrk.records.run import MeasuredScales, Resumption, RunRecord
from bigtrk.records.run_folder import (
    METRICS,
    RUN,
    read_metrics,
    read_run_record,
    write_run_record,
)
from bigtrk.training.checkpoint.folder import Found, name_best, take_last_good
from bigtrk.training.checkpoint.manifest import Progress
from bigtrk.training.data.event_source import Events
from bigtrk.training.data.features import check_measured
from bigtrk.training.model_files import check_shapes
from bigtrk.training.named_code import warn_of_other_code
from bigtrk.training.settings import Configuration

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
    "training.spike_",
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
    """Returns the configuration a run was started with, with `overrides` of what may change; raises
    InputError where `run` holds no run, or an override would make it another one.
    """
    content = read_run_record(run).config
    if not content:
        raise InputError(f"{run / RUN}: holds no config, without which no run is resumed")
    for override in overrides:
        if override.startswith(FIXED):
            raise InputError(
                f"{override}: the state of one optimizer is none of another; start a new run from "
                f"the weights of this one once it has ended (model.init_from)"
            )
        if not override.startswith(CHANGEABLE):
            raise InputError(
                f"{override}: a resumed run takes changes of {', '.join(CHANGEABLE)} only; "
                f"start a new run for others"
            )
    return apply_overrides(Configuration, content, overrides, str(run / RUN))


def recorded_scales(run: Path, configuration: Configuration) -> MeasuredScales:
    """Reads the scales that a run measured when it was started; raises InputError where it lacks
    one that its configuration needs.
    """
    measured = read_run_record(run).measured
    check_measured(str(run / RUN), configuration.data, measured)
    return measured


def find_checkpoint(configuration: Configuration, ranks: Ranks, events: Events, run: Path) -> Found:
    """Finds the checkpoint to resume from; raises InputError where there is no good one, the run
    was trained on other events, or it is done, be it for want of a better epoch. Collective.
    """
    warn_of_other_code(run, configuration)
    found = on_first_rank(take_last_good, run)
    checkpoint = found.checkpoint
    # One that was killed after its last step has no model yet: it has that to write.
    if read_run_record(run).ended is not None:
        _check_not_done(configuration, run, checkpoint.progress)
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


def _check_not_done(configuration: Configuration, run: Path, progress: Progress) -> None:
    if progress.epoch >= configuration.training.epochs:
        raise InputError(
            f"{run}: {progress.epoch} epochs are done already; add "
            f"training.epochs={progress.epoch + 1} or more"
        )
    best = progress.best
    if best and best.is_over(configuration.training.best.patience):
        raise InputError(
            f"{run}: ended since its last {best.waited} epochs were no better than the best before "
            f"them; to go on, set training.best.patience={best.waited + 1} or more, or null"
        )


def continue_record(run: Path, record: RunRecord, progress: Progress) -> None:
    """Writes how a run continues, from `record`, and drops from its records and `best.json` what
    came after its checkpoint: those steps will be computed again, and a crash may have left half a
    line. Raises InputError where a record is broken, or the disk refuses.
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
            f"{run / METRICS}: has records of {len(steps)} of the {progress.step} steps until the "
            f"checkpoint; reports lack the others, the training does not"
        )


def _is_before(record: MetricsRecord, progress: Progress) -> bool:
    """Whether a record precedes the checkpoint; that of an unfinished epoch does not."""
    if isinstance(record, EpochRecord):
        return record.epoch < progress.epoch
    return record.step < progress.step
