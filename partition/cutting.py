"""Cuts events from graph files into sector files, one or many at a time; rates their cuts."""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph, Sector, check_rows
from bigtrk.graphs.storage.event_folder import (
    MANIFEST,
    GraphFolder,
    SectionFile,
    file_of,
    read_manifest,
)
from bigtrk.graphs.storage.graph_folder import check_same_event
from bigtrk.graphs.storage.sector_folder import MOST_IDS, check_sectors, write_sectors
from bigtrk.machine import open_cores
from bigtrk.process import keep_freed_memory
from partition.partitioners import (
    PARTITIONERS,
    Integers,
    Method,
    adjacency,
    check_parts,
    check_width,
)
from partition.sectors import cut

Counts = list[dict[str, Any]]  # "sectors" of a sector file's record


def computed_edges(edge_index: Integers, part: Integers, parts: int) -> Integers:
    """Counts the edges with an end in each part: edge_index [2, E], part [N] -> [parts]."""
    owner = part.astype(np.min_scalar_type(max(parts - 1, 0)))
    source, destination = (owner.take(ends) for ends in edge_index)
    inside_or_in = np.bincount(destination, minlength=parts)
    return inside_or_in + np.bincount(source[source != destination], minlength=parts)


def figures(sectors: list[Sector]) -> dict[str, float]:
    """Returns the quality figures of one event's cut.

    cut_fraction: cut edges / edges. halo_fraction: halo rows of all sectors / nodes.
    edge_imbalance: largest number of computed edges of a sector / the mean. neighbours: mean number
    of sectors with which a sector exchanges rows.
    """
    nodes, edges = sectors[0].event_nodes, sectors[0].event_edges
    computed = [sector.n_edges for sector in sectors]
    exchanged = np.array([[s.send_splits, s.recv_splits] for s in sectors]).sum(axis=1)
    return {
        "cut_fraction": _ratio(sum(computed) - edges, edges),
        "halo_fraction": _ratio(sum(s.n_nodes - s.n_owned for s in sectors), nodes),
        "edge_imbalance": _ratio(max(computed) * len(sectors), sum(computed), empty=1.0),
        "neighbours": np.count_nonzero(exchanged) / len(sectors),
    }


def overall(records: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Returns the quality figures of all events together, from their files' records.

    Fractions are of the union of the events. edge_imbalance is the sum of the events' largest
    sectors over the sum of their mean sectors: the price of waiting for the slowest rank. seconds
    and metis_seconds are sums.
    """
    events = list(records)
    computed = [[s["edges"] for s in r["sectors"]] for r in events]
    edges = sum(r["edges"] for r in events)
    halo = sum(s["halo"] for r in events for s in r["sectors"])
    means = sum(sum(c) / len(c) for c in computed)
    sectors = sum(len(c) for c in computed)
    return {
        "cut_fraction": _ratio(sum(map(sum, computed)) - edges, edges),
        "halo_fraction": _ratio(halo, sum(r["nodes"] for r in events)),
        "edge_imbalance": _ratio(sum(map(max, computed)), means, empty=1.0),
        "neighbours": sum(r["quality"]["neighbours"] * r["parts"] for r in events) / sectors,
        "seconds": sum(r["quality"]["seconds"] for r in events),
        "metis_seconds": sum(r["quality"]["metis_seconds"] for r in events),
    }


def _ratio(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty


# `write_manifest` adds these keys for each file; a sector file has its own values.
_FILE_KEYS = ("file", "bytes", "digests")
MOST_SEED = 2**63 - 1  # METIS stores the seed in 64 bits


@dataclass(frozen=True)
class CutSettings:
    """The settings of a cut: `parts` for each event, or as many as `max_edges` per sector needs."""

    parts: int | None
    max_edges: int | None
    method: Method
    seed: int

    def parts_for(self, n_edges: int) -> int:
        """Returns the parts for an event: as set, or the least power of two that may suffice."""
        if self.parts is not None:
            return self.parts
        assert self.max_edges is not None, "either parts or max_edges is given"
        return 1 << max(-(-n_edges // self.max_edges) - 1, 0).bit_length()


def cut_event(graphs: Path, out: Path, event: str, settings: CutSettings) -> None:
    """Reads a graph, cuts it, and writes its sectors; the recorded `seconds` exclude writing."""
    started = time.perf_counter()
    folder = GraphFolder(graphs)
    graph, source = folder.read(event), folder.record(event)
    part, parts, metis_seconds = divide(graph, settings)
    sectors = cut(graph, torch.from_numpy(part), parts)
    quality = {
        **figures(sectors),
        "seconds": time.perf_counter() - started,
        "metis_seconds": metis_seconds,
    }
    kept = {key: value for key, value in source.items() if key not in _FILE_KEYS}
    made = {"cut": asdict(settings), "source_digests": source["digests"], "quality": quality}
    check_replaces(out, event, source)  # meanwhile another call may have cut an event of this name
    write_sectors(out, sectors, {**kept, **made})


def check_replaces(out: Path, event: str, source: dict[str, Any]) -> None:
    """Raises InputError if `out` has another event of this name. source: its graph's record."""
    path, before = file_of(out, event), {}
    with suppress(InputError):  # there is none, or it is damaged and replaced
        before = SectionFile(path).record
    check_same_event(path, before, source)


def divide(graph: EventGraph, settings: CutSettings) -> tuple[Integers, int, float]:
    """Returns parts of nodes [N], their number, METIS's seconds; InputError if it cannot be cut."""
    edge_index = graph.edge_index.numpy()
    _check_cut(graph, settings)
    undirected = adjacency(edge_index, graph.n_nodes)
    is_metis = settings.method is Method.METIS
    if is_metis:
        check_width(graph.name, undirected)
    parts, seconds = settings.parts_for(graph.n_edges), 0.0
    while True:
        check_parts(graph.name, graph.n_nodes, parts)
        started = time.perf_counter()
        part = PARTITIONERS[settings.method](graph, undirected, parts, settings.seed)
        seconds += (time.perf_counter() - started) * is_metis
        largest = int(computed_edges(edge_index, part, parts).max())
        if settings.max_edges is None or largest <= settings.max_edges:
            return part, parts, seconds
        # Cut edges count twice, so a cut that suffices on average may not for the largest.
        parts *= 2


def _check_cut(graph: EventGraph, settings: CutSettings) -> None:
    if not 0 <= settings.seed <= MOST_SEED:
        raise InputError(f"seed={settings.seed}: must be between 0 and {MOST_SEED}")
    check_size(graph.name, graph.n_nodes, graph.n_edges)
    check_rows(graph.edge_index, graph.n_nodes, f"{graph.name}: edge_index")
    edge_index = graph.edge_index.numpy()
    if settings.max_edges is None or not edge_index.size:
        return
    most = int(computed_edges(edge_index, np.arange(graph.n_nodes), graph.n_nodes).max())
    if most > settings.max_edges:
        raise InputError(
            f"{graph.name}: one node has {most} edges, which stay together in a sector; "
            f"use --max-edges {most} or more"
        )


def check_size(event: str, nodes: int, edges: int) -> None:
    """Raises InputError if sectors, in 32 bits, cannot number an event's nodes or edges."""
    if max(nodes, edges) > MOST_IDS:
        raise InputError(
            f"{event}: has {nodes:,} nodes and {edges:,} edges, but can be cut only up to "
            f"{MOST_IDS:,} of each; build its graph with tighter windows or a smaller radius"
        )


def is_done(out: Path, event: str, settings: CutSettings, digests: dict[str, str]) -> bool:
    """Whether `out` holds this event, undamaged, cut with these settings from this graph."""
    wanted = {"event": event, "cut": asdict(settings), "source_digests": digests}
    try:
        opened = SectionFile(file_of(out, event))
        if any(opened.record.get(key) != value for key, value in wanted.items()):
            return False
        check_sectors(opened)
    except InputError:
        return False
    return True


# Measured on two cores of an AMD EPYC.
_SECONDS_OF_EVENT, _EDGES_PER_SECOND = 0.025, 2.3e6
_SECONDS_WORTH_A_WORKER = 5.0

Failures = dict[str, str]  # the problem, by event


def check(graphs: GraphFolder, out: Path) -> None:
    """Raises InputError without graphs, or if `out` has other files or another event of a name."""
    if not graphs.events:
        raise InputError(f"{graphs.path}: holds no graphs; make some with 'bigtrk build'")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder for the sectors")
    kind = "sectors"
    try:
        if (out / MANIFEST).exists():
            kind, _ = read_manifest(out)
    except InputError:
        if (out / MANIFEST).exists():  # else another rank has removed it meanwhile
            raise
    if kind != "sectors":
        raise InputError(f"{out}: holds {kind}, not sectors; name another folder for the sectors")
    for event in graphs.events:
        check_replaces(out, event, graphs.record(event))


def of_wrong_size(graphs: GraphFolder, settings: CutSettings) -> Failures:
    """Returns events with fewer nodes than parts, or too many nodes or edges, by their records."""
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


def cut_events(
    graphs: Path, out: Path, events: list[str], settings: CutSettings, workers: int
) -> Iterator[Failures]:
    """Cuts `events`, each in a worker process if there are several; yields the failure of each."""
    if workers > 1:
        yield from _in_processes(graphs, out, events, settings, workers)
        return
    keep_freed_memory()
    for event in events:
        # A second thread gains a tenth, but on a busy machine costs 8 times.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            failure = _tried(event, partial(cut_event, graphs, out, event, settings))
        finally:
            torch.set_num_threads(threads)
        yield failure


def _tried(event: str, cut: Callable[[], None]) -> Failures:
    try:
        cut()
    except InputError as error:
        return {event: str(error)}
    return {}


def _in_processes(
    graphs: Path, out: Path, events: list[str], settings: CutSettings, workers: int
) -> Iterator[Failures]:
    """Cuts in a pool of processes. If a worker dies, the pool ends and one of half the size goes
    on. A single worker cuts in order, so the event at which it dies is known.
    """
    left = dict.fromkeys(events)
    while left:
        # METIS holds the GIL, so threads would take turns; forking a process with torch's threads
        # can hang.
        spawn = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_start_worker)
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


def useful_workers(graphs: GraphFolder, events: list[str]) -> int:
    """Returns the number of workers for `events`; 1 if this process alone is faster."""
    edges = sum(graphs.record(event)["edges"] for event in events)
    seconds = len(events) * _SECONDS_OF_EVENT + edges / _EDGES_PER_SECOND
    return min(open_cores(), 1 + int(seconds / _SECONDS_WORTH_A_WORKER))
