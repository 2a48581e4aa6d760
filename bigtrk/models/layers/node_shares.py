"""The shares of nodes in the first product of their edges' MLP.

That product reads [edge, source, destination], which are never concatenated: the nodes' share is
computed per node and then gathered, since nodes are 20 times fewer than edges and the concatenation
would be the widest tensor of the model.

Shapes: N nodes, H = hidden.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bigtrk.models.layers.chunked_mlp import Sink
from bigtrk.models.layers.workspace import Workspace


class NodeShares:
    """The shares of the source and of the destination, from `weight` [H, ...], whose last columns
    are theirs, `bias` [H] and the parts of the nodes, each [N, H].
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, nodes: Sequence[Tensor], work: Workspace
    ) -> None:
        self._widths = [values.shape[1] for values in nodes] * 2
        self._bias, self._nodes, self._work = bias.detach().to(work.dtype), nodes, work
        self._weights = self._columns(weight.detach().to(work.dtype))

    def _columns(self, weight: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Returns the columns of the sources and the destinations, for each part of the nodes."""
        columns = weight[:, -sum(self._widths) :].split(self._widths, dim=1)
        return columns[: len(self._nodes)], columns[len(self._nodes) :]

    def new(self) -> tuple[Tensor, Tensor]:
        """Makes room for what each node adds to edges that leave it and to those that reach it:
        [N, H].
        """
        n_nodes, hidden = len(self._nodes[0]), len(self._bias)
        of_source = self._work.rows("of source", n_nodes, hidden)
        return of_source, self._work.rows("of destination", n_nodes, hidden)

    def forward(self, rows: slice, of_source: Tensor, of_destination: Tensor) -> None:
        """Computes these rows of both shares."""
        shares = of_source[rows], of_destination[rows]
        shares[0].copy_(self._bias.expand_as(shares[0]))
        shares[1].zero_()
        for total, weights in zip(shares, self._weights, strict=True):
            for part, weight in zip(self._nodes, weights, strict=True):
                torch.addmm(total, part[rows], weight.t(), out=total)

    def backward(
        self,
        grad: tuple[Tensor, Tensor],
        of_weight: Tensor,
        of_bias: Tensor,
        sinks: Sequence[Sink],
    ) -> None:
        """Propagates gradients [N, H] of both shares; those of the nodes' parts go to `sinks`."""
        of_bias.add_(grad[0].sum(0))
        sides = zip(grad, self._weights, self._columns(of_weight), strict=True)
        for of_share, weights, of_weights in sides:
            for rows in self._work.chunks(len(of_share)):
                part = of_share[rows].to(self._work.dtype)
                each = zip(self._nodes, weights, of_weights, sinks, strict=True)
                for values, weight, of_columns, sink in each:
                    self._work.add_product(of_columns, part.t(), values[rows])
                    out = self._work.rows("gradient of input", len(part), weight.shape[1])
                    sink(rows, torch.mm(part, weight, out=out))
