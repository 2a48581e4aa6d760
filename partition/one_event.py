"""One event from its graph file to its sector file."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.fill_folder import check_same_event
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.graphs.storage.manifest import file_of
from bigtrk.graphs.storage.sector_folder import MOST_IDS, check_sectors, write_sectors
from bigtrk.graphs.storage.tensor_files import SectionFile
from partition.adjacency import Integers, adjacency
from partition.metis import check_parts, check_width
from partition.partitioners import PARTITIONERS, Method
from partition.quality import computed_edges, figures
from partition.sectors import cut

# `write_manifest` adds these for each file; a sector file has its own.
_OF_THE_FILE = ("file", "bytes", "digests")
MOST_SEED = 2**63 - 1  # METIS has it in 64 bits


@dataclass(frozen=True)
class CutSettings:
    """The settings of a cut: `parts` for every event, or as many as `max_edges` a sector needs."""

    parts: int | None
    max_edges: int | None
    method: Method
    seed: int

    def parts_for(self, n_edges: int) -> int:
        """Returns the parts of an event: as asked, or the least power of two that could suffice."""
        if self.parts is not None:
            return self.parts
        assert self.max_edges is not None, "either parts or max_edges is given"
        return 1 << max(-(-n_edges // self.max_edges) - 1, 0).bit_length()


def cut_event(graphs: Path, out: Path, event: str, settings: CutSettings) -> None:
    """Reads a graph, cuts it, and writes its sectors to `out`.

    The record's seconds cover reading, partitioning and cutting. Writing is not in them: the
    record is a part of what is written.
    """
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
    kept = {key: value for key, value in source.items() if key not in _OF_THE_FILE}
    made = {"cut": asdict(settings), "source_digests": source["digests"], "quality": quality}
    check_replaces(out, event, source)  # meanwhile another call may have cut an event of this name
    write_sectors(out, sectors, {**kept, **made})


def check_replaces(out: Path, event: str, source: dict[str, Any]) -> None:
    """Refuses to cut `event`, whose graph has the record `source`, where `out` has another one.

    Raises:
        InputError: it has.
    """
    path = file_of(out, event)
    try:
        before = SectionFile(path).record
    except InputError:
        return  # there is none, or it is damaged and replaced
    check_same_event(path, before, source)


def divide(graph: EventGraph, settings: CutSettings) -> tuple[Integers, int, float]:
    """Returns the part of each node [N], the number of parts, and the seconds spent in METIS.

    Raises:
        InputError: the graph is invalid, or cannot be cut as asked.
    """
    edge_index = graph.edge_index.numpy()
    _check(graph, settings)
    undirected = adjacency(edge_index, graph.n_nodes)
    if settings.method is Method.METIS:
        check_width(graph.name, undirected)
    parts, seconds = settings.parts_for(graph.n_edges), 0.0
    while True:
        check_parts(graph.name, graph.n_nodes, parts)
        started = time.perf_counter()
        part = PARTITIONERS[settings.method](graph, undirected, parts, settings.seed)
        if settings.method is Method.METIS:
            seconds += time.perf_counter() - started
        largest = int(computed_edges(edge_index, part, parts).max())
        if settings.max_edges is None or largest <= settings.max_edges:
            return part, parts, seconds
        # Cut edges count twice, so a cut that suffices on average may not for the largest.
        parts *= 2


def _check(graph: EventGraph, settings: CutSettings) -> None:
    if not 0 <= settings.seed <= MOST_SEED:
        raise InputError(f"seed={settings.seed}: must be between 0 and {MOST_SEED}")
    check_size(graph.name, graph.n_nodes, graph.n_edges)
    edge_index = graph.edge_index.numpy()
    if edge_index.size and not 0 <= edge_index.min() <= edge_index.max() < graph.n_nodes:
        raise InputError(
            f"{graph.name}: edges join nodes outside 0..{graph.n_nodes - 1}; build the graph again"
        )
    if settings.max_edges is None or not edge_index.size:
        return
    most = int(computed_edges(edge_index, np.arange(graph.n_nodes), graph.n_nodes).max())
    if most > settings.max_edges:
        raise InputError(
            f"{graph.name}: one node has {most} edges, which stay together in a sector; "
            f"use --max-edges {most} or more"
        )


def check_size(event: str, nodes: int, edges: int) -> None:
    """Refuses to cut an event whose nodes or edges sectors cannot number, in 32 bits.

    Raises:
        InputError: there are too many; names the event, both counts and the remedy.
    """
    if max(nodes, edges) > MOST_IDS:
        raise InputError(
            f"{event}: has {nodes:,} nodes and {edges:,} edges, and sectors number at most "
            f"{MOST_IDS:,} of each; build its graph with tighter windows or a smaller radius"
        )


def is_done(out: Path, event: str, settings: CutSettings, digests: dict[str, str]) -> bool:
    """Says whether `out` holds this event, whole, cut like this from the graph of these digests."""
    wanted = {"event": event, "cut": asdict(settings), "source_digests": digests}
    try:
        opened = SectionFile(file_of(out, event))
        if any(opened.record.get(key) != value for key, value in wanted.items()):
            return False
        check_sectors(opened)
    except InputError:
        return False
    return True
