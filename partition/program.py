"""Many events, cut by worker processes and by the tasks of an srun."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bigtrk.errors import InputError
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.graphs.storage.manifest import MANIFEST, read_manifest
from bigtrk.process.heap import keep_freed_memory
from partition.metis import check_parts
from partition.one_event import CutSettings, check_replaces, check_size, cut_event, is_done

# Measured on two cores of an AMD EPYC (medians of three): two workers took 1.5 times as long as
# this process alone for 8 events of 336 k edges, which it cuts in 1.4 s, and no less for 4 events
# of 3 M edges, in 5.1 s.
_SECONDS_OF_EVENT, _EDGES_PER_SECOND = 0.025, 2.3e6
_SECONDS_WORTH_A_WORKER = 5.0

Failures = dict[str, str]  # the problem, by event


def check(graphs: GraphFolder, out: Path) -> None:
    """Refuses what cannot work, before anything is written.

    Raises:
        InputError: there is nothing to cut, or `out` holds something else, or another event of the
            name of one of these.
    """
    if not graphs.events:
        raise InputError(f"{graphs.path}: holds no graphs; make some with 'bigtrk build EVENTS'")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder for the sectors")
    try:
        kind = read_manifest(out)[0] if (out / MANIFEST).exists() else "sectors"
    except InputError:
        # Another task of this srun may have removed it meanwhile.
        if (out / MANIFEST).exists():
            raise
        kind = "sectors"
    if kind != "sectors":
        raise InputError(f"{out}: holds {kind}, not sectors; name another folder for the sectors")
    for event in graphs.events:
        check_replaces(out, event, graphs.record(event))


def of_wrong_size(graphs: GraphFolder, settings: CutSettings) -> Failures:
    """Finds the events that are known to have fewer nodes than parts, or more nodes or edges than
    sectors number, before they are read.
    """
    failures = {}
    for event in graphs.events:
        record = graphs.record(event)
        try:
            check_size(event, record["nodes"], record["edges"])
            check_parts(event, record["nodes"], settings.parts_for(record["edges"]))
        except InputError as error:
            failures[event] = str(error)
    return failures


def pending(graphs: GraphFolder, out: Path, settings: CutSettings) -> list[str]:
    """Lists the events of `graphs` that `out` does not yet hold, cut with these settings."""
    return [
        event
        for event in graphs.events
        if not is_done(out, event, settings, graphs.record(event)["digests"])
    ]


def share(events: list[str], environment: dict[str, str]) -> list[str]:
    """Returns the events of this task under srun; all of them elsewhere."""
    # A batch script itself has SLURM_PROCID and SLURM_NTASKS too; only srun's tasks have a step.
    if "SLURM_STEP_ID" not in environment:
        return events
    return events[int(environment["SLURM_PROCID"]) :: int(environment["SLURM_NTASKS"])]


def cut_events(
    graphs: Path, out: Path, events: list[str], settings: CutSettings, workers: int
) -> Iterator[Failures]:
    """Cuts `events`, each in a worker process, and yields for each what failed, if anything: its
    graph is damaged, cannot be cut as asked, or ends the worker process.
    """
    if workers > 1:
        yield from _in_processes(graphs, out, events, settings, workers)
        return
    keep_freed_memory()
    for event in events:
        with _one_thread():
            yield _tried(event, partial(cut_event, graphs, out, event, settings))


def _tried(event: str, cut: Callable[[], None]) -> Failures:
    try:
        cut()
    except InputError as error:
        return {event: str(error)}
    return {}


def _in_processes(
    graphs: Path, out: Path, events: list[str], settings: CutSettings, workers: int
) -> Iterator[Failures]:
    """Cuts in a pool, which ends when a worker dies; one of half as many then goes on. One worker
    cuts in order, so the event that it dies of is known.
    """
    left = dict.fromkeys(events)
    while left:
        # METIS holds the GIL, so threads would take turns; forking a process with torch's threads
        # can hang.
        pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
        )
        jobs: dict[Any, str] = {
            pool.submit(cut_event, graphs, out, event, settings): event for event in left
        }
        try:
            for job in as_completed(jobs):
                with suppress(BrokenProcessPool):
                    failure = _tried(jobs[job], job.result)
                    del left[jobs[job]]
                    yield failure
        finally:
            pool.shutdown(cancel_futures=True)
        if left and workers == 1:
            event = next(iter(left))
            del left[event]
            why = "its worker process died, of a crash or for want of memory"
            yield {event: f"{event}: {why}; try --method wedges, or a host with more memory"}
        workers = max(1, workers // 2)


def _start_worker() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keeps torch to one thread: a second gains a tenth, but on a busy machine costs 8 times."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def useful_workers(graphs: GraphFolder, events: list[str]) -> int:
    """Returns how many workers to start for `events`: one per core, as far as they take longer to
    cut than workers to start. One stands for none: this process cuts.
    """
    edges = sum(graphs.record(event)["edges"] for event in events)
    seconds = len(events) * _SECONDS_OF_EVENT + edges / _EDGES_PER_SECOND
    return min(len(os.sched_getaffinity(0)), 1 + int(seconds / _SECONDS_WORTH_A_WORKER))
