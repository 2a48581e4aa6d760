"""Counts the edges that neighbours in an embedding make, and the true ones among them.

Shapes: N hits, D dimensions, T true edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from bigtrk.errors import RankError
from bigtrk.parallel.collectives import gather_items, together
from bigtrk.records.metrics import EmbeddingMetrics, Neighbourhood
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.share import Share, run_model
from bigtrk.training.draw import Draw
from bigtrk.training.embedding.neighbours import search_tree
from bigtrk.training.embedding.pairs import pair_loss
from bigtrk.training.embedding.settings import PairSettings
from bigtrk.training.steps.routers import scoring_router

KEPT = {"95": 0.95, "98": 0.98, "99": 0.99, "99.5": 0.995}  # shares of the target edges
SAMPLE = 5000  # hits of an event whose neighbours are counted
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EmbeddedEvent:
    """Event number `event` in the embedding: hits [N, D], the lengths of its true edges and of
    those in the target (ascending), and the loss of its pairs.
    """

    event: int
    hits: Floats
    lengths: Floats
    target_lengths: Floats
    loss: float

    def edges_within(self, radii: Sequence[float]) -> Floats:
        """Counts pairs of hits closer than each radius, from the neighbours of a few hits."""
        n_hits = len(self.hits)
        chosen = np.random.default_rng(0).choice(n_hits, min(SAMPLE, n_hits), replace=False)
        tree = search_tree(self.hits)
        counted = [
            tree.query_ball_point(self.hits[chosen], radius, return_length=True).sum()
            for radius in radii
        ]
        pairs = np.array(counted, np.float64) - len(chosen)  # each hit is its own neighbour
        return pairs * n_hits / (2 * max(len(chosen), 1))


@torch.no_grad()
def embed_event(model: nn.Module, share: Share, pairs: PairSettings) -> EmbeddedEvent:
    """Embeds the hits of a whole event with truth, and measures its true edges."""
    [embedding], [batch] = run_model(model, share), share.batches
    loss = pair_loss(embedding, batch, batch.truth.counts, pairs, Draw(0, 0))
    hits = embedding.double().cpu()
    if not hits.isfinite().all():
        raise RankError(
            f"rank {dist.get_rank()}: the embedding of {batch.sector.event} is not finite: lower "
            f"optimizer.lr or set optimizer.gradient_clipping and resume from the last checkpoint"
        )
    source, destination = batch.sector.edge_index
    lengths = (hits[source] - hits[destination]).norm(dim=1)
    return EmbeddedEvent(
        event=batch.event or 0,
        hits=hits.numpy(),
        lengths=_ascending(lengths),
        target_lengths=_ascending(lengths[batch.is_target]),
        loss=float(loss),
    )


def _ascending(lengths: Tensor) -> Floats:
    return np.sort(lengths.numpy())


def radius_of(target_lengths: Floats, kept: float) -> float:
    """Returns the smallest radius within which a share `kept` of ascending lengths lie; a little
    more, as a search for neighbours rounds in another way.
    """
    return float(np.quantile(target_lengths, kept, method="inverted_cdf")) * (1 + 1e-6)


def validate_embedding(
    model: nn.Module, maker: BatchMaker, sources: list[EventSource], pairs: PairSettings
) -> EmbeddingMetrics:
    """Returns the mean loss and the graphs of the events; the same on all ranks. Collective."""
    ranks = maker.world.ranks
    router = scoring_router(sources, ranks.world_size)
    mine: list[EmbeddedEvent] = []
    model.eval()
    for micro_step in router.route(range(len(sources))):
        assignment = micro_step[ranks.rank]
        share = together(partial(maker.exchanging, assignment, sources))
        embedded = embed_event(model, share, pairs)
        if assignment is not None:
            mine.append(embedded)
    model.train()
    found = [
        part for parts in gather_items([(e.target_lengths, e.loss) for e in mine]) for part in parts
    ]
    lengths = np.sort(np.concatenate([part[0] for part in found]))
    loss = sum(sorted(part[1] for part in found)) / len(found)
    if not len(lengths):
        return EmbeddingMetrics(loss=loss)
    radii = {name: radius_of(lengths, kept) for name, kept in KEPT.items()}
    counted = [(e.event, e.edges_within([*radii.values()]), e.lengths) for e in mine]
    counts = [
        (
            event,
            edges,
            [float(np.searchsorted(all_, r, "right") / max(len(all_), 1)) for r in radii.values()],
        )
        for event, edges, all_ in counted
    ]
    every = sorted(
        (part for parts in gather_items(counts) for part in parts), key=lambda part: part[0]
    )
    at = {
        name: Neighbourhood(
            radius=radius,
            edges=float(np.mean([edges[i] for _, edges, _ in every])),
            efficiency=float(np.mean([kept[i] for _, _, kept in every])),
        )
        for i, (name, radius) in enumerate(radii.items())
    }
    return EmbeddingMetrics(loss=loss, at=at)
