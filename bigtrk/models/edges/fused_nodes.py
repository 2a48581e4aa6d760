"""A layer's node update in fused launches on GPUs (triton_nodes.py); shapes as in passes.py."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bigtrk.models.edges import fused
from bigtrk.models.edges.fused import Term
from bigtrk.models.edges.passes import EdgePass, NodeShares
from bigtrk.models.protocol import Ends
from bigtrk.tracing import traced


class FusedShares(NodeShares):
    """`NodeShares` in one launch, which reads the parameters without copying them."""

    def forward(self, rows: slice, of_source: Tensor, of_destination: Tensor) -> None:
        nodes = [part[rows] for part in self._nodes]
        weights = [*self._weights[0], *self._weights[1]]
        made, dtype = (of_source[rows], of_destination[rows]), self._work.dtype
        fused.products(nodes, weights, self._bias, made, dtype, transposed=False, written=2)


class FusedNodePass(EdgePass):
    """`EdgePass` with its node update in fused launches; the backward pass repeats products."""

    _is_fused = True
    _of_update: Sequence[Term] = ()  # weight gradients of the update, still to be computed

    def _shares_of(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, NodeShares]:
        return weight, FusedShares(weight, bias, self._nodes, self._work)

    def _sums_of_edges(self) -> Ends:
        """Returns new sums, kept for the backward pass; in the products' type if one block."""
        work, layer = self._work, self.layer
        dtype = work.dtype if layer.in_out and self._states.in_one_block else work.sums
        outgoing, incoming = (torch.empty_like(self._nodes[0], dtype=dtype) for _ in range(2))
        return self._cleared(outgoing, incoming)

    def _updated(self, sums: Ends) -> Tensor:
        work, n_owned, totals = self._work, self.layer.graph.n_owned, self._totals(sums)
        rows_of, weights = (*totals, *self._nodes), self._node_part(self._weights)
        owned = sums.of_source.new_empty(n_owned, sums.of_source.shape[1], dtype=work.sums)
        copy = None
        if len(self._nodes[0]) == n_owned and work.dtype != work.sums:
            copy = torch.empty_like(owned, dtype=work.dtype)
            self.layer.graph.halo.converted[owned] = copy
        fused.launch_mlp(work.dtype, rows_of, weights, owned, (n_owned, n_owned), copy=copy)
        self.kept = [total.to(work.dtype) for total in totals]
        return owned

    def _node_part(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Selects the node update's part of the layer's weights, or of their gradients."""
        return [weight.detach() for weight in weights[self._n_edge :]]

    def update_backward(self, grad: Tensor, of_x: Tensor, of_weights: Sequence[Tensor]) -> Ends:
        edge_index, layers = self.layer.graph.edge_index, len(self.layer.node)
        totals = self._kept_of_nodes
        (n_nodes, hidden), rows = of_x.shape, self._work.rows
        read = rows("read by nodes", (layers - 1) * n_nodes, hidden).view(
            layers - 1, n_nodes, hidden
        )
        grads = rows("gradients of nodes", layers * n_nodes, hidden).view(layers, n_nodes, hidden)
        of_sums = [rows(f"of sums {k}", n_nodes, hidden) for k in range(len(totals))]
        with traced(f"layer {self.layer.i} node, backward"):
            sizes, given = (n_nodes, self.layer.graph.n_owned), grad.contiguous()
            mlp = (*totals, *self._nodes), self._node_part(self._weights), None, sizes, given
            fused.launch_mlp(self._work.dtype, *mlp, [*read], [*grads], of_sums)
        of_first, of_bias, *others = self._node_part(of_weights)
        first, *later = grads
        columns = zip([*totals, *self._nodes], of_first.split(hidden, dim=1), strict=True)
        terms = [Term(first, values, of_columns) for values, of_columns in columns]
        terms[0] = terms[0]._replace(of_bias=of_bias)
        terms += map(Term, later, read, others[::2], others[1::2])
        self._of_update = terms
        return Ends.between(of_sums[-1], of_sums[0], edge_index)

    def _shares_backward(
        self, shares: tuple[Tensor, Tensor], of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> None:
        encoded, dtype, parts = self.layer.graph.nodes, self._work.dtype, len(self._nodes)
        hidden, written, made = of_x.shape[1], 1, [of_x]
        if encoded:
            total, adds = encoded.total()
            written, made = 1 if adds else 2, [of_x, total]
        columns = [*self._shares.columns(self._weights[0].detach())]
        rows_of = [*shares]
        if self._of_update:
            rows_of.append(self._of_update[0].grads)
            columns.append(self._node_part(self._weights)[0].split(hidden, dim=1)[-parts:])
        weights = [side[part] for part in range(parts) for side in columns]
        fused.products(rows_of, weights, None, made, dtype, transposed=True, written=written)
        terms: list[Term] = []
        for grads, of_side in zip(shares, self._shares.columns(of_weights[0]), strict=True):
            terms += map(Term, [grads] * parts, self._nodes, of_side)
        terms[0] = terms[0]._replace(of_bias=of_weights[1])
        fused.weights_backward([*terms, *self._of_update], dtype)
