"""`bigtrk plan --choose --try`: short trainings of the candidates that are predicted fastest.

Predictions of time are some tenths off; candidates that are closer to each other than that are told
apart by training them.
"""

import math
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bigtrk.console import complain, follow
from bigtrk.errors import InputError
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.graphs.storage.manifest import file_of, write_manifest
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
from bigtrk.training.automatic.candidates import Candidate
from bigtrk.training.automatic.choice import Choice, said
from bigtrk.training.automatic.margin import Limit
from bigtrk.training.automatic.prediction import Prediction, Task, predict
from bigtrk.training.data.event_source import EventSource, open_events
from partition.cutting import CutSettings, cut_event
from partition.partitioners import Method

# Steps of a trial at least, the first of which is not counted; short ones are so many more that
# they take so many seconds, at most so many.
_STEPS, _SECONDS, _MOST_STEPS = 4, 2.0, 12
# A trial trains on all its events, and to its last epoch.
_ALL_STEPS = (
    "data.events=null",
    "data.validation=0",
    "training.best={}",
    "training.minutes=null",
)
# Tried are no more candidates than so many; of those that fit, the ones predicted to take up to so
# many times as long as the fastest, and so many that differ in sectors alone. Tried again are those
# that took up to so many times as long.
_PREDICTED, _MOST, _ALIKE, _CLOSE = 1.6, 8, 3, 1.25
# Where none of them fits, tried are so many that are predicted to need least memory.
_SMALLEST = 3

# Trains on so many ranks of this host with these arguments, its output in a log; returns a status.
Launch = Callable[[int, Sequence[str], Path], int]


def by_torchrun(ranks: int, arguments: Sequence[str], log: Path) -> int:
    """Trains as users do."""
    command = torchrun_command(ranks, TRAIN, arguments)
    return train_quietly(command, log, torchrun_environment(ranks))


def try_out(choice: Choice, task: Task, given: Given, launch: Launch = by_torchrun) -> list[Trial]:
    """Trains the candidates that are predicted fastest on the same few events, one after another,
    with all ranks on this host.

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
        tried: list[Trial] = []
        for one in follow(shortlist(choice, tried, task.limit), _MOST, "trials"):
            trial = bench.train(one)
            tried.append(trial)
        if all(_too_large(one, task.limit) for one in tried):
            tried += bench.run(_smallest(choice, tried))
        again = bench.run([one.prediction for one in _close(tried, task.limit)])
    known = {one.prediction: one for one in again}
    return [_faster(one, known.get(one.prediction, one)) for one in tried]


def shortlist(choice: Choice, tried: Sequence[Trial], limit: Limit) -> Iterator[Prediction]:
    """Yields the candidates predicted fastest, fastest first: of those whose events are laid out
    alike, the one with fewest sectors. Of those that differ in sectors alone the second is the one
    in fewest parts, whatever is predicted of it: small sectors were up to a fifth faster and up to
    four fifths slower, of which predictions know little.

    tried: what became of those before, which grows meanwhile. Where one took more than the limit,
    those that would do so as well, if they exceed their predictions as much, are left out.
    """
    fitting = {one: one.seconds for one in choice.considered if one.seconds is not None}
    distinct = {(one.candidate, one.cut): one for one in reversed(fitting)}
    families: defaultdict[Candidate, list[Prediction]] = defaultdict(list)
    for one in distinct.values():
        families[one.candidate.routed].append(one)
    turn = {one: fitting[one] for one in distinct.values()}
    for family in families.values():
        turn[min(family, key=lambda one: one.cut)] = min(turn[one] for one in family)
    for one in sorted(turn, key=lambda one: (turn[one], fitting[one], one.sectors)):
        held = [trial.prediction for trial in tried if not _too_large(trial, limit)]
        fastest = turn[held[0]] if held else math.inf
        if len(tried) == _MOST or turn[one] > _PREDICTED * fastest:
            return
        alike = sum(other in families[one.candidate.routed] for other in held)
        if alike < _ALIKE and limit.holds(one.memory * _excess(tried, limit)):
            yield one


def _excess(tried: Sequence[Trial], limit: Limit) -> float:
    """Returns the largest ratio of measured to predicted memory of those that took too much."""
    return max(
        (
            one.peak_bytes / one.prediction.memory
            for one in tried
            if one.peak_bytes and _too_large(one, limit)
        ),
        default=1.0,
    )


def steps(seconds: float) -> int:
    """Returns the steps of a trial, one of which is predicted to take so many seconds."""
    return min(max(_STEPS, math.ceil(_SECONDS / seconds)), _MOST_STEPS)


def _too_large(one: Trial, limit: Limit) -> bool:
    return one.peak_bytes is not None and not limit.holds(one.peak_bytes)


def _smallest(choice: Choice, tried: Sequence[Trial]) -> list[Prediction]:
    """Lists the candidates that are predicted to need least memory, the least first, but for those
    that were tried.
    """
    known = {one.prediction for one in tried}
    others = [one for one in choice.considered if one.seconds is not None and one not in known]
    distinct = {(one.candidate, one.cut): one for one in reversed(others)}
    return sorted(distinct.values(), key=lambda one: one.memory)[:_SMALLEST]


def _some_events(folders: Sequence[Path], task: Task) -> list[EventSource]:
    """Returns the largest event, which decides what fits, and those before it by name."""
    sources = open_events(folders)
    largest = max(sources, key=lambda source: source.size.edges)
    others = [source for source in sources if source is not largest]
    return [largest, *others[: _STEPS * task.configuration.training.events_per_step - 1]]


def _close(trials: Sequence[Trial], limit: Limit) -> list[Trial]:
    """Lists those that fit and are so close to the fastest that noise may have decided."""
    seconds = {one.prediction: one.seconds for one in trials if one.fits(limit)}
    known = [value for value in seconds.values() if value is not None]
    most = _CLOSE * min(known, default=0.0)
    close = [one for one in trials if (seconds.get(one.prediction) or math.inf) <= most]
    return close if len(close) > 1 else []


def _faster(one: Trial, other: Trial) -> Trial:
    """Returns the faster of two trials of a candidate."""
    return min(one, other, key=lambda trial: trial.seconds or math.inf)


@dataclass(frozen=True)
class _Bench:
    """Trains candidates on some events, in a folder of its own."""

    folder: Path
    task: Task
    given: Given
    events: list[EventSource]
    launch: Launch

    def run(self, candidates: Sequence[Prediction]) -> list[Trial]:
        return [self.train(one) for one in follow(candidates, len(candidates), "trials")]

    def train(self, one: Prediction) -> Trial:
        run, log = self.folder / "run", self.folder / "run.log"
        shutil.rmtree(run, ignore_errors=True)
        arguments = training_arguments(one, self.task, self.given, self._data(one.sectors))
        own = [*_ALL_STEPS, f"training.epochs={self._epochs(one)}", f"run.folder={run}"]
        if self.launch(self.task.world, [*arguments, *own], log):
            failure = " / ".join(tail(log)[-1:])
            complain(f"trial of {said(one)}: failed: {failure}")
            return Trial(one, None, None, failure)
        record = read_run(run)
        peaks = [epoch.peak_memory_bytes or 0 for epoch in record.epochs]
        seconds = median(step.seconds for step in record.steps[1:])
        return Trial(one, seconds, max(peaks) * self._excess_of_all(one))

    def _excess_of_all(self, one: Prediction) -> float:
        """Returns by how much more memory a candidate is predicted to need for all events."""
        some = replace(self.task, sizes=[source.size for source in self.events])
        return max(1.0, one.memory / predict(some, one.candidate, one.sectors).memory)

    def _epochs(self, one: Prediction) -> int:
        """Returns the epochs that have as many steps as a trial needs."""
        assert one.seconds is not None
        per_step = self.task.configuration.training.events_per_step
        return -(-steps(one.seconds) // -(-len(self.events) // per_step))

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
