"""The shares of nodes in the first product of their edges' MLP.

That product reads [edge, source, destination], which are never concatenated: the nodes' share is
computed per node and then gathered, since nodes are 20 times fewer than edges and the concatenation
would be the widest tensor of the model.

Shapes: N nodes, H = hidden.
"""

from collections.abc import Sequence

from torch import Tensor

from bigtrk.models.kernels import passes_for
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
        self.weight = weight.detach().to(work.dtype)
        self._weights = self._columns(self.weight)
        self._passes = passes_for(work.device, work.dtype)

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
        nodes = [part[rows] for part in self._nodes]
        of_ends = zip((of_source, of_destination), self._weights, (self._bias, None), strict=True)
        for share, weights, bias in of_ends:
            self._passes.multiply(nodes, [weight.t() for weight in weights], bias, share[rows])

    def clear(self, of_weight: Tensor, of_bias: Tensor) -> None:
        """Sets to zero what `backward` adds to: the nodes' columns of a gradient [H, ...], and the
        bias's [H].
        """
        of_weight[:, -sum(self._widths) :].zero_()
        of_bias.zero_()

    def backward(
        self,
        grad: tuple[Tensor, Tensor],
        of_weight: Tensor,
        of_bias: Tensor,
        sinks: Sequence[Sink],
    ) -> None:
        """Propagates gradients [N, H] of both shares; those of the nodes' parts go to `sinks`."""
        self._passes.add_sum(grad[0], of_bias)
        sides = zip(grad, self._weights, self._columns(of_weight), strict=True)
        for of_share, weights, of_weights in sides:
            for rows in self._work.chunks(len(of_share)):
                part = of_share[rows].to(self._work.dtype)
                each = zip(self._nodes, weights, of_weights, sinks, strict=True)
                for values, weight, of_columns, sink in each:
                    self._passes.add_product(part, values[rows], of_columns)
                    out = self._work.rows("gradient of input", len(part), weight.shape[1])
                    self._passes.multiply([part], [weight], None, out)
                    sink(rows, out)
