"""Trains embeddings: draws pairs of hits, computes their loss, and validates by radius graphs.

Shapes: N hits or points, D dimensions, T true pairs, K pairs or neighbours, Q queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding as gathered

from bigtrk.errors import AGAINST_DIVERGENCE, RankError
from bigtrk.parallel.collectives import gather_items, together
from bigtrk.records.metrics import EmbeddingMetrics, Neighbourhood
from bigtrk.training.data.batch import Batch, BatchMaker, Share, run_model
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.loss import Draw, summed
from bigtrk.training.settings import PairSettings
from bigtrk.training.steps import scoring_router

if TYPE_CHECKING:
    from scipy.spatial import cKDTree


_BLOCK = 2**26  # distances that an accelerator holds at once: 256 MiB


def false_pairs(embedding: Tensor, batch: Batch, pairs: PairSettings, draw: Draw) -> Tensor:
    """Draws pairs of hits [2, K] of different particles: near in embedding [N, D], or random."""
    particle, n_hits = batch.sector.particle_id, len(embedding)
    # If weights are not finite, neither is the loss of true pairs, and the step reports it.
    if n_hits < 2 or particle is None or not embedding.isfinite().all():
        return torch.empty(2, 0, dtype=torch.int64, device=embedding.device)
    generator = draw.generator(batch)
    hits = generator.choice(n_hits, min(pairs.hard_hits, n_hits), replace=False)
    random = generator.integers(n_hits, size=(2, pairs.random_pairs))
    hard = nearest(
        embedding, torch.from_numpy(hits).to(embedding.device), pairs.neighbours, pairs.margin
    )
    drawn = torch.cat([hard, torch.from_numpy(random).to(embedding.device)], dim=1)
    first, second = particle.to(embedding.device)[drawn]
    return drawn[:, (drawn[0] != drawn[1]) & ((first != second) | (first == 0))]


def nearest(points: Tensor, queries: Tensor, k: int, radius: float) -> Tensor:
    """Returns pairs [2, P] of a query and a neighbour: for each of `queries` [Q] (rows of `points`
    [N, D]), its at most `k` nearest other points within `radius`.
    """
    found = _on_device if points.is_cuda else _in_tree
    near = found(points, queries, min(k + 1, len(points)), radius)
    pairs = torch.stack([queries.repeat_interleave(near.shape[1]), near.reshape(-1)])
    return pairs[:, (pairs[1] != len(points)) & (pairs[0] != pairs[1])]


def search_tree(points: NDArray[np.floating]) -> "cKDTree":
    """Builds a tree that finds neighbours among points [N, D]."""
    # Imported here, as that takes 0.35 s, and most trainings embed nothing.
    from scipy.spatial import cKDTree

    return cKDTree(points)


def _in_tree(points: Tensor, queries: Tensor, k: int, radius: float) -> Tensor:
    """Returns neighbours [Q, k], filled with N if there are fewer."""
    places = points.float().numpy()
    _, near = search_tree(places).query(
        places[queries.numpy()], k=list(range(1, k + 1)), distance_upper_bound=radius
    )
    return torch.from_numpy(near.astype(np.int64))


def _on_device(points: Tensor, queries: Tensor, k: int, radius: float) -> Tensor:
    """Returns neighbours [Q, k], filled with N if there are fewer; in blocks of queries."""
    blocks = []
    for block in queries.split(max(1, _BLOCK // len(points))):
        distance, near = torch.cdist(points[block], points).topk(k, largest=False)
        blocks.append(torch.where(distance < radius, near, len(points)))
    return torch.cat(blocks)


KEPT = {"95": 0.95, "98": 0.98, "99": 0.99, "99.5": 0.995}  # shares of the target edges
SAMPLE = 5000  # hits of an event whose neighbours are counted
Floats = NDArray[np.float64]


def pair_loss(
    embedding: Tensor, batch: Batch, counts: Tensor, pairs: PairSettings, draw: Draw
) -> Tensor:
    """Returns a batch's scalar loss. embedding [N, D]; counts [2]: true and false pairs, divide."""
    # True edges that count as false (target.other_weight) have weight 0 in the first sum.
    weight = batch.truth.weight * batch.truth.label
    near = _squared(embedding, batch.edge_index) * weight
    false = false_pairs(embedding.detach(), batch, pairs, draw)
    lacking = (pairs.margin**2 - _squared(embedding, false)).clamp(min=0)
    positives, negatives = counts.clamp(min=1).to(embedding)
    loss: Tensor = summed(near) / positives + summed(lacking) / negatives
    return loss


def _squared(embedding: Tensor, pairs: Tensor) -> Tensor:
    """Returns the squared distances [K] of pairs [2, K] in the embedding."""
    # Unlike index_select's, the backward pass has one order of sums on GPUs, too.
    first, second = (gathered(ends, embedding) for ends in pairs)
    return (first - second).square().sum(dim=1)


@dataclass(frozen=True)
class EmbeddedEvent:
    """An embedded event: hits [N, D], loss, and sorted lengths of true edges and target edges."""

    event: int
    hits: Floats
    lengths: Floats
    target_lengths: Floats
    loss: float

    def edges_within(self, radii: Sequence[float]) -> list[float]:
        """Estimates the number of pairs of hits within each radius, from a sample of hits."""
        n_hits = len(self.hits)
        chosen = np.random.default_rng(0).choice(n_hits, min(SAMPLE, n_hits), replace=False)
        tree = search_tree(self.hits)
        counted = [
            tree.query_ball_point(self.hits[chosen], radius, return_length=True).sum()
            for radius in radii
        ]
        # Each hit is its own neighbour.
        return [(n - len(chosen)) * n_hits / (2 * max(len(chosen), 1)) for n in counted]

    def kept_within(self, radii: Sequence[float]) -> list[float]:
        """Returns, for each radius, the fraction of true edges that are no longer."""
        n_kept = np.searchsorted(self.lengths, radii, "right")
        return [float(n) / max(len(self.lengths), 1) for n in n_kept]


@torch.no_grad()
def _embed_event(model: nn.Module, share: Share, pairs: PairSettings) -> EmbeddedEvent:
    """Embeds the hits of a whole event, and measures its true edges; RankError if not finite."""
    [embedding], [batch] = run_model(model, share), share.batches
    loss = pair_loss(embedding, batch, batch.truth.counts, pairs, Draw(0, 0))
    hits = embedding.double().cpu()
    if not (hits.isfinite().all() and loss.isfinite()):
        raise RankError(
            f"rank {dist.get_rank()}: the embedding or the loss of {batch.sector.event} is not "
            f"finite; {AGAINST_DIVERGENCE}"
        )
    source, destination = batch.sector.edge_index
    lengths = (hits[source] - hits[destination]).norm(dim=1)
    return EmbeddedEvent(
        event=batch.event or 0,
        hits=hits.numpy(),
        lengths=np.sort(lengths.numpy()),
        target_lengths=np.sort(lengths[batch.is_target].numpy()),
        loss=float(loss),
    )


def radius_of(target_lengths: Floats, kept: float) -> float:
    """Returns the radius that holds a fraction `kept` of the sorted lengths, plus a margin."""
    return float(np.quantile(target_lengths, kept, method="inverted_cdf")) * (1 + 1e-6)


def validate_embedding(
    model: nn.Module, maker: BatchMaker, sources: list[EventSource], pairs: PairSettings
) -> EmbeddingMetrics:
    """Returns the mean loss and radius graphs of events, the same on all ranks. Collective."""
    ranks = maker.world.ranks
    router = scoring_router(sources, ranks.world_size)
    mine: list[EmbeddedEvent] = []
    model.eval()
    for micro_step in router.route(range(len(sources))):
        assignment = micro_step[ranks.rank]
        share = together(maker.exchanging, assignment, sources)
        embedded = _embed_event(model, share, pairs)
        if assignment is not None:
            mine.append(embedded)
    model.train()
    found = [*chain(*gather_items([(one.target_lengths, one.loss) for one in mine]))]
    lengths = np.sort(np.concatenate([target for target, _ in found]))
    loss = sum(sorted(loss for _, loss in found)) / len(found)
    if not len(lengths):
        return EmbeddingMetrics(loss=loss)
    radii = [radius_of(lengths, kept) for kept in KEPT.values()]
    counts = [(one.event, one.edges_within(radii), one.kept_within(radii)) for one in mine]
    _, edges, kept = zip(*sorted(chain(*gather_items(counts))), strict=True)
    edges, kept = np.mean(edges, axis=0), np.mean(kept, axis=0)
    return EmbeddingMetrics(
        loss=loss,
        at={
            name: Neighbourhood(radius=radius, edges=float(edges[i]), efficiency=float(kept[i]))
            for i, (name, radius) in enumerate(zip(KEPT, radii, strict=True))
        },
    )
