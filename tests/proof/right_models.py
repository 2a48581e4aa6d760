"""Models that are exact though what they compute on the way differs between sectors."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tests.proof.wrong_models import Sums


class BothEnds(Sums):
    """Sums what an edge has at both of its ends."""

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        source, destination = edge_index
        return rows.index_add(0, source, e).index_add(0, destination, e.tanh())


class StableSoftmax(Sums):
    """Attention over the edges that end at a node; the maximum of all cancels."""

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        destination = edge_index[1]
        if not len(e):
            return rows
        weight = (e - e.max()).exp()
        total = torch.zeros_like(rows).index_add(0, destination, weight)
        return rows.index_add(0, destination, e * weight / total[destination])


class Float32(Sums):
    """Sums in float32, whatever it is given."""

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        sums = torch.zeros(len(rows), dtype=torch.float32)
        return rows + sums.index_add(0, edge_index[1], e[:, 0].float())[:, None]


class RecomputesLayers(Sums):
    """Computes its layers anew in the backward pass, and is right."""

    def between(self, rows: Tensor, e: Tensor, edge_index: Tensor, n_owned: int) -> Tensor:  # noqa: ARG002
        made: Tensor = checkpoint(torch.tanh, rows, use_reentrant=False)
        return made


class Embedding(Sums):
    """A hit model: rows of nodes, from their neighbours'."""

    def scores(self, x: Tensor, edge_index: Tensor) -> Tensor:
        made: Tensor = self.last(x.index_add(0, edge_index[1], x[edge_index[0]]))
        return made
