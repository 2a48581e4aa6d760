"""Random choices of a step: false edges, or false pairs of hits. They depend on the seed, the step
and the event, so they are the same on whichever rank.

Shapes: N hits or points, D dimensions, Q queries, K neighbours or pairs; E edges of a sector, C
chosen ones.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigtrk.training.data.batch import Batch, Share, run_model
from bigtrk.training.settings import NegativeSettings, PairSettings

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

_BLOCK = 2**26  # distances that an accelerator holds at once: 256 MiB


@dataclass(frozen=True)
class Draw:
    """The run's seed and the step's number."""

    seed: int
    step: int

    def generator(self, batch: Batch) -> np.random.Generator:
        """Makes the generator of a batch."""
        event = batch.event or 0
        return np.random.default_rng((self.seed, self.step, event, batch.sector.part))


@torch.no_grad()
def choose_edges(model: nn.Module, share: Share, negatives: NegativeSettings, draw: Draw) -> Share:
    """Takes the edges of each sector that are to be trained, in their order. Every rank runs the
    model once, also on an empty sector.

    The false ones chosen weigh alike, and together as much as all. A sector without true edges has
    as many false ones as with one.
    """
    scored = zip(share.batches, run_model(model, share), strict=True)
    return replace(share, batches=[_chosen(*one, negatives, draw) for one in scored])


def _chosen(batch: Batch, scores: Tensor, negatives: NegativeSettings, draw: Draw) -> Batch:
    """Takes the edges of a sector that are to be trained, by their `scores` [E]."""
    truth = batch.truth.take(torch.arange(len(scores), device=scores.device))
    weight, label = truth.weight, truth.label
    positive = (label > 0) & (weight > 0)
    negative = ((label == 0) & (weight > 0)).nonzero()[:, 0]
    each = max(int(positive.sum()), 1)
    by_score = negative[scores[negative].argsort(descending=True, stable=True)]
    hard = by_score[: round(negatives.hard * each)]
    # Drawn by their place among the edges: a score may round otherwise elsewhere.
    others = by_score[len(hard) :].sort().values
    n_easy = min(round(negatives.easy * each), len(others))
    rows = draw.generator(batch).choice(len(others), n_easy, replace=False)
    false = torch.cat([hard, others[torch.from_numpy(rows).to(others.device)]])
    weight = weight.clone()
    weight[false] *= len(negative) / max(len(false), 1)
    chosen = torch.cat([positive.nonzero()[:, 0], false]).sort().values
    kept = chosen.cpu()
    return replace(
        batch,
        edge_features=batch.edge_features[chosen],
        edge_index=batch.edge_index[:, chosen],
        is_target=batch.is_target[kept],
        weights=batch.weights[kept],
        truth=replace(truth, weight=weight).take(chosen),
    )


def false_pairs(embedding: Tensor, batch: Batch, pairs: PairSettings, draw: Draw) -> Tensor:
    """Draws hard and random pairs of hits [2, K] for embedding [N, D], none of one particle; hits
    of noise have no particle.
    """
    particle, n_hits = batch.sector.particle_id, len(embedding)
    # Where weights are not finite, the loss of true pairs is not: the step says so.
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
    """Finds the at most `k` points nearest to each of `queries` [Q] (rows of `points` [N, D]) that
    are less than `radius` away, itself left out: pairs [2, P] of a query and a neighbour.
    """
    found = _on_device if points.is_cuda else _in_tree
    near = found(points, queries, min(k + 1, len(points)), radius)
    pairs = torch.stack([queries.repeat_interleave(near.shape[1]), near.reshape(-1)])
    return pairs[:, (pairs[1] != len(points)) & (pairs[0] != pairs[1])]


def search_tree(points: NDArray[np.floating]) -> "cKDTree":
    """Returns a tree of points [N, D] in which neighbours are found."""
    # Imported here, as that takes 0.35 s, and most trainings embed nothing.
    from scipy.spatial import cKDTree

    return cKDTree(points)


def _in_tree(points: Tensor, queries: Tensor, k: int, radius: float) -> Tensor:
    """Returns neighbours [Q, k], N where there are fewer."""
    places = points.float().numpy()
    _, near = search_tree(places).query(
        places[queries.numpy()], k=list(range(1, k + 1)), distance_upper_bound=radius
    )
    return torch.from_numpy(near.astype(np.int64))


def _on_device(points: Tensor, queries: Tensor, k: int, radius: float) -> Tensor:
    """Returns neighbours [Q, k], N where there are fewer; by blocks of queries."""
    blocks = []
    for block in queries.split(max(1, _BLOCK // len(points))):
        distance, near = torch.cdist(points[block], points).topk(k, largest=False)
        blocks.append(torch.where(distance < radius, near, len(points)))
    return torch.cat(blocks)
