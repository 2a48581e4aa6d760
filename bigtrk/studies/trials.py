"""`bigtrk plan --choose --try`: short trainings with options that fit, in their order."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bigtrk.console import complain, follow
from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import GraphFolder, file_of, write_manifest
from bigtrk.parallel.routing import Cut
from bigtrk.planning.choice import Given, Trial, training_arguments
from bigtrk.records.run_folder import read_run
from bigtrk.shipped import TRAIN
from bigtrk.studies import launch
from bigtrk.training.automatic import Candidate, Option, Task, options
from bigtrk.training.data.event_source import EventSource, open_events
from partition.cutting import CutSettings, cut_event
from partition.partitioners import Method

_STEPS = 6  # of a trial, the first of which is not counted
# A trial trains on all its events, and to its last epoch.
_ALL_STEPS = ["data.events=null", "data.validation=0", "training.best={}", "training.minutes=null"]
_MOST, _ALIKE = 8, 3  # options to try at most, and those of one candidate with other sectors


def try_out(task: Task, given: Given) -> list[Trial]:
    """Trains each option of the shortlist for a few steps, on the same few events and with all
    ranks on this host; returns the trials. InputError without events, or if ranks exceed this host.
    """
    if not given.folders:
        raise InputError("--try: no events to train on; name folders of graphs or sectors")
    if task.world > task.ranks_per_node:
        raise InputError(
            f"--try needs all {task.world} ranks on this host, but --ranks-per-node gives it "
            f"{task.ranks_per_node}; leave --try out, or raise --ranks-per-node"
        )
    sources = open_events(given.folders)
    largest = max(sources, key=lambda source: source.size.edges)  # which decides what fits
    others = [source for source in sources if source is not largest]
    events = [largest, *others[: _STEPS * task.configuration.training.events_per_step - 1]]
    with tempfile.TemporaryDirectory(prefix="bigtrk-trials-") as folder:
        chosen = list(shortlist(task))
        steps = follow(chosen, len(chosen), "trials")
        return [_train(one, task, given, events, Path(folder)) for one in steps]


def shortlist(task: Task) -> Iterator[Option]:
    """Yields the options to try: the first that fit, with the engine of the first one, each
    candidate in a few numbers of sectors. Options that routing lays out alike are tried once.
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


def _train(
    one: Option, task: Task, given: Given, events: Sequence[EventSource], folder: Path
) -> Trial:
    """Trains an option for a few steps; returns its step time and peak memory, or its failure."""
    run, log = folder / "run", folder / "run.log"
    shutil.rmtree(run, ignore_errors=True)
    log.unlink(missing_ok=True)
    steps_per_epoch = -(-len(events) // task.configuration.training.events_per_step)
    arguments = [
        *training_arguments(one, task, given, _data(events, folder, one.sectors)),
        *_ALL_STEPS,
        f"training.epochs={-(-_STEPS // steps_per_epoch)}",
        f"run.folder={run}",
    ]
    command = launch.torchrun_command(task.world, TRAIN, arguments)
    try:
        launch.train_logged(command, log, launch.torchrun_environment(task.world), quiet=True)
    except InputError:
        failure = " / ".join(launch.tail(log)[-1:])
        complain(f"trial of {one}: failed: {failure}")
        return Trial(one, None, None, failure)
    record = read_run(run)
    peaks = [epoch.peak_memory_bytes or 0 for epoch in record.epochs]
    return Trial(one, median(step.seconds for step in record.steps[1:]), max(peaks))


def _data(events: Sequence[EventSource], folder: Path, sectors: int) -> list[Path]:
    """Returns folders of the events, whole events cut in `sectors`; reuses folders made before."""
    whole, stored, cut = (folder / name for name in ("graphs", "sectors", f"graphs-in-{sectors}"))
    for place in (whole, stored):
        own = [source for source in events if source.folder.kind == place.name]
        if own and not place.exists():
            place.mkdir()
            for source in own:
                path = file_of(source.folder.path, source.name)
                launch.link_or_copy(path, place / path.name)
            write_manifest(place, place.name, {}, [source.name for source in own])
    if whole.exists() and sectors > 1:
        if not cut.exists():
            names = GraphFolder(whole).events
            for name in names:
                cut_event(whole, cut, name, CutSettings(sectors, None, Method.METIS, seed=0))
            write_manifest(cut, "sectors", {}, names)
        whole = cut
    return [place for place in (whole, stored) if place.exists()]
