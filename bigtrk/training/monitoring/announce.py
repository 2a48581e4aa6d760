"""Messages of a run while it trains: its start, each epoch, the best epoch, stalled ranks."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bigtrk.console import MOST_LINES, console, duration, say
from bigtrk.disk.files import unlinked
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import number_of
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.watchdog import Told, Verdict
from bigtrk.records.metrics import AverageRecord, EpochRecord
from bigtrk.records.record import write_record
from bigtrk.records.run import STALL, End, RunRecord, StallRecord
from bigtrk.tracks.edge_metrics import RATIOS
from bigtrk.training.schedule import Best
from bigtrk.training.settings import TrainingSettings
from bigtrk.training.steps import RoutedStep


def announce(
    ranks: Ranks, folder: Path, record: RunRecord, routes: Sequence[RoutedStep], stored: int
) -> None:
    """Prints what is trained, on what. stored: the most sectors into which an event is cut."""
    if not ranks.is_first:
        return
    counts = Counter(cut.parts for step in routes for cut in step.cuts.values())
    shown = ", ".join(f"{counts[k]} in {k} sectors" for k in sorted(counts) if k > 1)
    say(
        f"{folder}: {record.parameters:,} parameters, {record.engine_detail} on "
        f"{number_of(ranks.world_size, 'rank')} of {ranks.device}; "
        f"{number_of(record.data.train_events or 0, 'event')}, "
        f"{number_of(record.data.edges or 0, 'edge')} to train on{f' ({shown})' if shown else ''}, "
        f"{record.data.validation_events} to validate"
    )
    busy, n = max(step.busy_ranks for step in routes), ranks.world_size
    if busy < n:
        ways = f"set training.events_per_step to {n} or more"
        if not routes[0].mini_batch and stored >= n:
            ways += ", or training.routing=stored to train events in all their sectors"
        elif not routes[0].mini_batch:
            ways += f", or cut the events in {n} sectors or more"
        say(f"a step gives work to only {busy} of {n} ranks; {ways}")


def announce_best(ranks: Ranks, search: Best | None, end: End | None) -> None:
    """Prints the best epoch, if the run searches it, and whether patience ended the run."""
    if not ranks.is_first or search is None:
        return
    best = search.record
    if end == "patience":
        say(f"no better epoch in the last {search.waited}: training.best.patience ends the run")
    if best is None:
        say(f"no epoch recorded {search.metric} (training.best.metric), so none is the best")
    else:
        say(f"best epoch {best.epoch + 1}: {best.metric} {best.value:.5f}, in {best.checkpoint}")


def stall_notes(ranks: Ranks, folder: Path, lock: FolderLock) -> Told:
    """Returns a function that writes the watchdog's verdict to a run's `stall.json`."""

    def note(verdict: Verdict | None, ends: bool) -> None:
        if ranks.is_first:
            lock.check()
        stall = StallRecord.of(verdict.stalled, verdict.text, ends) if verdict else None
        write_record(unlinked(folder / STALL), stall)

    return note


class EpochLines:
    """Prints a line per epoch on rank 0; in a long log, the first one and each tenth part."""

    def __init__(self, ranks: Ranks, settings: TrainingSettings) -> None:
        self._ranks, self._settings = ranks, settings
        self._start, self._epochs, self._trained = time.monotonic(), 0, 0.0
        self._tenths = self._timed = 0

    def show(self, record: EpochRecord) -> None:
        """Prints the line of an epoch, if it is due."""
        self._epochs += 1
        if record.batch_seconds is not None:  # else no step is from this job
            self._timed += 1
        self._trained += record.seconds
        if not self._ranks.is_first or not (self._is_due(record.epoch + 1) or console.is_terminal):
            return
        loss, spikes = record.train_loss, record.spikes
        learnt = "-" if loss is None else f"{loss:.5f}"
        learnt += f" ({spikes} loss spikes left out)" if spikes else ""
        averaged = f"  averaged weights: {_scores(record.average)}" if record.average else ""
        left = self._seconds_left(record.epoch + 1)
        say(
            f"epoch {record.epoch + 1}/{self._settings.epochs}  train loss {learnt}  "
            f"validation: {_scores(record)}{averaged}  lr {record.lr:.3g}  "
            f"{record.seconds:.1f} s  {record.edges_per_second:,.0f} edges/s  "
            f"peak {record.peak_memory_bytes / 2**30:.2f} GiB"
            f"{f'  {duration(left)} left' if left > 0 else ''}"
        )

    def _is_due(self, done: int) -> bool:
        minutes = self._settings.minutes
        part = max(done / self._settings.epochs, self._trained / (60 * minutes) if minutes else 0)
        told, self._tenths = self._tenths, int(MOST_LINES * part)
        few = self._settings.epochs <= 2 * MOST_LINES
        return few or self._epochs == 1 or self._tenths > told

    def _seconds_left(self, done: int) -> float:
        if not self._timed:
            return 0.0
        pace = (time.monotonic() - self._start) / self._timed
        left = pace * (self._settings.epochs - done)
        minutes = self._settings.minutes
        return left if minutes is None else min(left, 60 * minutes - self._trained)


def _scores(record: EpochRecord | AverageRecord) -> str:
    """Writes the known validation means, and how many events some of them leave out."""
    if embedding := record.embedding:
        loss = "" if embedding.loss is None else f"loss {embedding.loss:.4f}"
        graph = embedding.at.get("99")
        if graph is None:
            return f"{loss}  (no target edges)"
        return (
            f"{loss}  99 % of the target edges within {graph.radius:.3g}: {graph.edges:,.0f} edges "
            f"per event"
        )
    validation = record.validation
    if validation is None:
        return "-"
    means = {name: getattr(validation, name) for name in ("loss", *RATIOS)}
    shown = "  ".join(f"{name} {x:.4f}" for name, x in means.items() if x is not None)
    return shown + (f"  ({validation.undefined})" if validation.undefined else "")
