"""The pairs of hits that a step trains an embedding on, and their loss.

Shapes: N hits, D dimensions, T true pairs, K false pairs.
"""

import torch
from torch import Tensor

from bigtrk.models.edges.plain import gathered
from bigtrk.training.data.share import Batch
from bigtrk.training.draw import Draw
from bigtrk.training.embedding.neighbours import nearest
from bigtrk.training.embedding.settings import PairSettings
from bigtrk.training.losses.loss import summed


def pair_loss(
    embedding: Tensor, batch: Batch, counts: Tensor, pairs: PairSettings, draw: Draw
) -> Tensor:
    """Computes a batch's part of the loss: embedding [N, D] -> scalar.

    counts [2]: the true and the false pairs of all that the loss is a mean over.
    """
    # True edges that are trained as false (target.other_weight) are not drawn together.
    weight = batch.truth.weight * batch.truth.label
    near = _squared(embedding, batch.edge_index) * weight
    false = _false_pairs(embedding.detach(), batch, pairs, draw)
    lacking = (pairs.margin**2 - _squared(embedding, false)).clamp(min=0)
    positives, negatives = counts.clamp(min=1).to(embedding)
    loss: Tensor = summed(near) / positives + summed(lacking) / negatives
    return loss


def _squared(embedding: Tensor, pairs: Tensor) -> Tensor:
    """Returns the squared distances of pairs [2, K]: [K]."""
    first, second = gathered(embedding, pairs[0]), gathered(embedding, pairs[1])
    return (first - second).square().sum(dim=1)


def _false_pairs(embedding: Tensor, batch: Batch, pairs: PairSettings, draw: Draw) -> Tensor:
    """Draws hard and random pairs [2, K], without those of one particle; noise has none."""
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
