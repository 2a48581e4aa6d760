"""The sizes of events to plan for: of folders, as numbers, from papers, or of mini-batches.

Of runs that train parts of events, sectors' sizes are in their manifest and wedges are taken to be
alike. ShaDow's are drawn as a run draws them: how far a walk reaches is a matter of the graph, and
not of its degrees alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from bigtrk.cost.event_size import EventSize
from bigtrk.errors import InputError
from bigtrk.graphs.sector import Sector
from bigtrk.sampling.shadow import ShaDow
from bigtrk.sampling.subgraphs import Walk
from bigtrk.training.data.event_source import EventSource, open_events
from bigtrk.training.settings import Configuration

# Means of Tripathy et al. (Ex3: TrackML above 1 GeV; CTD), and one graph of event 1000.
PAPERS = {
    "ex3": EventSize(13_000, 47_800),
    "ctd": EventSize(330_700, 6_900_000),
    "event1000": EventSize(103_783, 2_984_951),
}
_DRAWN = 8  # ShaDow mini-batches of the largest event
# Threads sample one bulk ahead of the one in use.
_BULKS = 2
# The rows by destination in which edges are looked up: an edge's place and its source.
_EDGE_BYTES_TO_SAMPLE = 8 + 8


@dataclass(frozen=True)
class Sizes:
    """The source of event sizes: numbers, a paper, or folders."""

    nodes: int | None
    edges: int | None
    paper: str | None

    @property
    def given(self) -> bool:
        """Whether sizes are given without folders."""
        return (self.nodes, self.edges, self.paper) != (None, None, None)

    def of(self, folders: Sequence[Path]) -> list[EventSize]:
        """Returns the sizes asked for.

        Raises:
            InputError: not exactly one of the three is given, or a folder holds something else.
        """
        numbers = self.nodes is not None or self.edges is not None
        if (bool(folders) + numbers + (self.paper is not None)) != 1:
            raise InputError(
                "bigtrk plan: say which events: folders of graphs or sectors, --nodes with "
                "--edges, or --events ex3, ctd or event1000"
            )
        if self.paper is not None:
            if self.paper not in PAPERS:
                raise InputError(f"--events {self.paper!r}: choose {', '.join(PAPERS)}")
            return [PAPERS[self.paper]]
        if folders:
            return [source.size for source in open_events(folders)]
        if self.nodes is None or self.edges is None:
            raise InputError("bigtrk plan: --nodes and --edges belong together")
        return [EventSize(self.nodes, self.edges)]


@dataclass(frozen=True)
class MiniBatches:
    """Parts of events that are trained alone, and the bytes that a rank keeps to make them from."""

    sizes: Sequence[EventSize]
    held_bytes: float = 0.0


def mini_batches(
    configuration: Configuration, sources: Sequence[EventSource]
) -> MiniBatches | None:
    """Returns the mini-batches of a run that samples events; None where these are whole.

    Raises:
        InputError: an event that is drawn from cannot be read.
    """
    sampling = configuration.sampling
    match sampling.method:
        case "sectors":
            return MiniBatches([size for one in sources for size in _sectors(one)])
        case "wedges":
            wedges = [_share(source, sampling.wedges) for source in sources]
            return MiniBatches([size for size in wedges for _ in range(sampling.wedges)])
        case "shadow":
            return _subgraphs(configuration, sources)
        case _:
            return None


def _sectors(source: EventSource) -> list[EventSize]:
    record = source.record
    if source.parts == 1:
        return [EventSize(record["nodes"], record["edges"])]
    return [EventSize(one["owned"] + one["halo"], one["edges"]) for one in record["sectors"]]


def _share(source: EventSource, parts: int) -> EventSize:
    return EventSize(source.record["nodes"] / parts, source.record["edges"] / parts)


def _subgraphs(configuration: Configuration, sources: Sequence[EventSource]) -> MiniBatches:
    """Draws mini-batches from the event with most edges."""
    sampling = configuration.sampling
    shadow = ShaDow(Walk(sampling.depth, sampling.fanout), sampling.batch_size, sampling.bulk)
    largest = max(sources, key=lambda source: source.record["edges"])
    whole = largest.read(part=0, parts=1)
    seed = configuration.training.seed, sources.index(largest)
    drawn = islice(shadow.batches(whole, torch.device("cpu"), seed, 0, 0, 1), _DRAWN)
    sectors = list(drawn)
    most = max(source.record["nodes"] for source in sources)
    ahead = min(_BULKS * sampling.bulk, -(-most // sampling.batch_size))
    sampled = ahead * max(map(_bytes, sectors))
    held = _bytes(whole) + _EDGE_BYTES_TO_SAMPLE * whole.n_edges + sampled
    return MiniBatches([EventSize(sector.n_nodes, sector.n_edges) for sector in sectors], held)


def _bytes(sector: Sector) -> float:
    """Counts the bytes of a sector's nodes and edges."""
    columns = (
        sector.node_features, sector.edge_features, sector.edge_index, sector.node_id,
        sector.edge_id, sector.owns_edge, sector.y, sector.hit_id, sector.particle_id,
        sector.hit_weight, sector.modules,
    )  # fmt: skip
    return float(sum(column.nbytes for column in columns if column is not None))
