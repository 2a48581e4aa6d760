"""`bigtrk plan --choose --try`: short trainings of options that fit, in the order of options."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bigtrk.console import complain, follow
from bigtrk.errors import InputError
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.graphs.storage.manifest import file_of, write_manifest
from bigtrk.parallel.routing import Cut
from bigtrk.planning.choice import Given, Trial, training_arguments
from bigtrk.records.run_folder import read_run
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import (
    ended_by_sigterm,
    tail,
    torchrun_command,
    torchrun_environment,
    train_quietly,
)
from bigtrk.training.automatic import Candidate, Limit, Option, Task, options
from bigtrk.training.data.event_source import EventSource, open_events
from partition.cutting import CutSettings, cut_event
from partition.partitioners import Method

# Steps of a trial, the first of which is not counted.
_STEPS = 6
# A trial trains on all its events, and to its last epoch.
_ALL_STEPS = (
    "data.events=null",
    "data.validation=0",
    "training.best={}",
    "training.minutes=null",
)
# The most options that are tried, and of them the most that differ in sectors alone.
_MOST, _ALIKE = 8, 3
# Trials that took up to this many times as long as the fastest are repeated: noise may decide.
_CLOSE = 1.25

# Trains on so many ranks of this host with these arguments, its output in a log; returns a status.
Launch = Callable[[int, Sequence[str], Path], int]


def by_torchrun(ranks: int, arguments: Sequence[str], log: Path) -> int:
    """Trains as users do."""
    command = torchrun_command(ranks, TRAIN, arguments)
    return train_quietly(command, log, torchrun_environment(ranks))


def try_out(task: Task, given: Given, launch: Launch = by_torchrun) -> list[Trial]:
    """Trains the first options that fit on the same few events, one after another, with all ranks
    on this host.

    Raises:
        InputError: there are no events to train on, or the ranks are more than a host has.
    """
    if not given.folders:
        raise InputError("bigtrk plan --try: trains on events; name folders of them")
    if task.world > task.ranks_per_node:
        raise InputError(
            f"bigtrk plan --try: trains on this host alone, which has {task.ranks_per_node} of the "
            f"{task.world} ranks; leave --try out, or raise --ranks-per-node"
        )
    with ended_by_sigterm(), tempfile.TemporaryDirectory(prefix="bigtrk-trials-") as folder:
        bench = _Bench(Path(folder), task, given, _some_events(given.folders, task), launch)
        tried = bench.run(list(shortlist(task)))
        again = bench.run([one.option for one in _close(tried, task.limit)])
    known = {one.option: one for one in again}
    return [_faster(one, known.get(one.option, one)) for one in tried]


def shortlist(task: Task) -> Iterator[Option]:
    """Yields the options to try: the first that fit, under the engine of the first, of each
    candidate in few numbers of sectors. Those that routing lays out alike are tried once.
    """
    seen: set[tuple[Candidate, Cut]] = set()
    alike, engine = Counter[Candidate](), ""
    for one in options(task):
        laid = one.candidate, one.cut
        if not one.fits or laid in seen or alike[one.candidate] == _ALIKE:
            continue
        engine = engine or one.engine
        if len(seen) == _MOST or one.engine != engine:
            return
        seen.add(laid)
        alike[one.candidate] += 1
        yield one


def _some_events(folders: Sequence[Path], task: Task) -> list[EventSource]:
    """Returns the largest event, which decides what fits, and those before it by name."""
    sources = open_events(folders)
    largest = max(sources, key=lambda source: source.size.edges)
    others = [source for source in sources if source is not largest]
    return [largest, *others[: _STEPS * task.configuration.training.events_per_step - 1]]


def _close(trials: Sequence[Trial], limit: Limit) -> list[Trial]:
    """Lists those that fit and are so close to the fastest that noise may have decided."""
    fitting = [(one.seconds, one) for one in trials if one.seconds and one.fits(limit)]
    most = _CLOSE * min((seconds for seconds, _ in fitting), default=0.0)
    close = [one for seconds, one in fitting if seconds <= most]
    return close if len(close) > 1 else []


def _faster(one: Trial, other: Trial) -> Trial:
    """Returns the faster of two trials of an option."""
    return min(one, other, key=lambda trial: trial.seconds or float("inf"))


@dataclass(frozen=True)
class _Bench:
    """Trains options on some events, in a folder of its own."""

    folder: Path
    task: Task
    given: Given
    events: list[EventSource]
    launch: Launch

    def run(self, chosen: Sequence[Option]) -> list[Trial]:
        return [self.train(one) for one in follow(chosen, len(chosen), "trials")]

    def train(self, one: Option) -> Trial:
        run, log = self.folder / "run", self.folder / "run.log"
        shutil.rmtree(run, ignore_errors=True)
        arguments = training_arguments(one, self.task, self.given, self._data(one.sectors))
        own = [*_ALL_STEPS, f"training.epochs={self._epochs()}", f"run.folder={run}"]
        if self.launch(self.task.world, [*arguments, *own], log):
            failure = " / ".join(tail(log)[-1:])
            complain(f"trial of {one}: failed: {failure}")
            return Trial(one, None, None, failure)
        record = read_run(run)
        peaks = [epoch.peak_memory_bytes or 0 for epoch in record.epochs]
        seconds = median(step.seconds for step in record.steps[1:])
        return Trial(one, seconds, max(peaks))

    def _epochs(self) -> int:
        """Returns the epochs that have as many steps as a trial needs."""
        per_step = self.task.configuration.training.events_per_step
        return -(-_STEPS // -(-len(self.events) // per_step))

    def _data(self, sectors: int) -> list[Path]:
        """Returns folders of the events, whole ones cut in `sectors`; makes them once."""
        made = [_placed(self.events, self.folder / kind, kind) for kind in ("graphs", "sectors")]
        whole, cut = self.folder / "graphs", self.folder / f"graphs-in-{sectors}"
        if whole in made and sectors > 1:
            made = [cut, *(folder for folder in made if folder != whole)]
            _cut(whole, cut, sectors)
        return [folder for folder in made if folder]


def _placed(events: Sequence[EventSource], folder: Path, kind: str) -> Path | None:
    """Returns a folder of those of the events that are stored as `kind`; None if none is."""
    own = [source for source in events if source.folder.kind == kind]
    if own and not folder.exists():
        folder.mkdir()
        for source in own:
            path = file_of(source.folder.path, source.name)
            try:
                os.link(path, folder / path.name)
            except OSError:  # on another file system
                shutil.copyfile(path, folder / path.name)
        write_manifest(folder, kind, {}, [source.name for source in own])
    return folder if own else None


def _cut(graphs: Path, sectors: Path, parts: int) -> None:
    """Cuts the events of a folder as `python -m partition` does, once."""
    if sectors.exists():
        return
    names = GraphFolder(graphs).events
    for name in names:
        cut_event(graphs, sectors, name, CutSettings(parts, None, Method.METIS, seed=0))
    write_manifest(sectors, "sectors", {}, names)
