"""The sizes of mini-batches, of runs that train parts of events.

Sectors' sizes are in their manifest, wedges are taken to be alike, and those of ShaDow follow from
drawing some as a run does: how far a walk reaches is a matter of the graph, and not of its degrees
alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from bigtrk.cost.event_size import EventSize
from bigtrk.graphs.sector import Sector
from bigtrk.sampling.shadow import ShaDow
from bigtrk.sampling.subgraphs import Walk
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.batching import n_steps

_DRAWN = 8  # ShaDow mini-batches of a rank, of the largest event
# Threads sample one bulk ahead of the one in use.
_BULKS = 2
# The rows by destination in which edges are looked up: an edge's place and its source.
_EDGE_BYTES_TO_SAMPLE = 8 + 8


@dataclass(frozen=True)
class MiniBatches:
    """Parts of events that are trained alone: the sizes of all or of some that were drawn.

    of_each_rank: each rank has one of its own in every step, none like another; otherwise a step's
    are laid over the ranks. steps: those of the run, where each rank has its own. held_bytes: what
    a rank keeps to make them from.
    """

    sizes: Sequence[EventSize]
    of_each_rank: bool
    steps: int = 0
    held_bytes: float = 0.0


def mini_batches(
    configuration: Configuration, sources: Sequence[EventSource], world: int
) -> MiniBatches:
    """Returns the mini-batches of a run on `world` ranks that samples events.

    Raises:
        InputError: an event that is drawn from cannot be read.
    """
    sampling = configuration.sampling
    match sampling.method:
        case "sectors":
            return MiniBatches([size for one in sources for size in _sectors(one)], False)
        case "wedges":
            wedges = [_share(source, sampling.wedges) for source in sources]
            return MiniBatches([size for size in wedges for _ in range(sampling.wedges)], False)
        case "shadow":
            return _subgraphs(configuration, sources, world)
        case _:
            raise AssertionError("whole events are no mini-batches")


def _sectors(source: EventSource) -> list[EventSize]:
    record = source.record
    if source.parts == 1:
        return [EventSize(record["nodes"], record["edges"])]
    return [EventSize(one["owned"] + one["halo"], one["edges"]) for one in record["sectors"]]


def _share(source: EventSource, parts: int) -> EventSize:
    return EventSize(source.record["nodes"] / parts, source.record["edges"] / parts)


def _subgraphs(
    configuration: Configuration, sources: Sequence[EventSource], world: int
) -> MiniBatches:
    """Draws mini-batches of the first rank from the event with most edges."""
    sampling = configuration.sampling
    shadow = ShaDow(Walk(sampling.depth, sampling.fanout), sampling.batch_size, sampling.bulk)
    largest = max(sources, key=lambda source: source.record["edges"])
    whole = largest.read(part=0, parts=1)
    seed = configuration.training.seed, sources.index(largest)
    drawn = islice(shadow.batches(whole, torch.device("cpu"), seed, 0, 0, world), _DRAWN)
    sectors = list(drawn)
    steps = [n_steps(source.record["nodes"], sampling.batch_size) for source in sources]
    ahead = min(_BULKS * sampling.bulk, max(steps)) * max(map(_bytes, sectors))
    held = _bytes(whole) + _EDGE_BYTES_TO_SAMPLE * whole.n_edges + ahead
    sizes = [EventSize(sector.n_nodes, sector.n_edges) for sector in sectors]
    total = configuration.training.epochs * sum(steps)
    return MiniBatches(sizes, of_each_rank=True, steps=total, held_bytes=held)


def _bytes(sector: Sector) -> float:
    """Counts the bytes of a sector's nodes and edges."""
    columns = (
        sector.node_features, sector.edge_features, sector.edge_index, sector.node_id,
        sector.edge_id, sector.owns_edge, sector.y, sector.hit_id, sector.particle_id,
        sector.hit_weight, sector.modules,
    )  # fmt: skip
    return float(sum(column.nbytes for column in columns if column is not None))
