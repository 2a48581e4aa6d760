"""A layer's nodes in a few fused launches on GPUs (triton_nodes.py); shapes as in passes.py."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.models.edges import fused, schedule, work
from bigtrk.models.edges.passes import EdgePass, NodeShares
from bigtrk.models.protocol import Ends
from bigtrk.tracing import traced


class Term(NamedTuple):
    """Rows [N, H] whose product is a weight's gradient; their sum may be a bias's."""

    grads: Tensor
    values: Tensor
    of_weight: Tensor
    of_bias: Tensor | None = None


def weights_backward(terms: Sequence[Term], dtype: torch.dtype) -> None:
    """Writes the gradients of weights and biases; sums of `grads` of a bias are in float32."""
    terms = sorted(terms, key=lambda term: term.of_bias is None)
    pairs = [(term.grads, term.values) for term in terms]
    biases = [term.of_bias for term in terms if term.of_bias is not None]
    n_rows, hidden = terms[0].grads.shape
    size = schedule.node_tile(hidden, dtype)
    rows_of_part = size.height * max(1, -(-n_rows // (size.height * schedule.NODE_PARTS)))
    parts, lines = -(-n_rows // rows_of_part), len(terms) * hidden + len(biases)
    partials = terms[0].grads.new_empty(parts, lines, hidden, dtype=torch.float32)
    if work.counts(partials.device):
        tensors = [tensor for pair in pairs for tensor in pair]
        work.note(work.of_nodes([*tensors, partials], n_rows * len(terms), dtype))
    else:
        layout = size.side, size.height, schedule.NODE_SUM_WARPS
        fused.sum_products(pairs, partials, rows_of_part, len(biases), dtype, *layout)
    fused.sum_partials(partials, [term.of_weight for term in terms], biases, adds=False)


class FusedShares(NodeShares):
    """`NodeShares` in one launch, which reads the parameters themselves."""

    def forward(self, rows: slice, of_source: Tensor, of_destination: Tensor) -> None:
        nodes = [part[rows] for part in self._nodes]
        weights = [*self._weights[0], *self._weights[1]]
        made, dtype = (of_source[rows], of_destination[rows]), self._work.dtype
        fused.products(nodes, weights, self._bias, made, dtype, transposed=False, written=2)


class FusedNodePass(EdgePass):
    """`EdgePass` with its nodes in fused launches, which compute products anew."""

    _is_fused = True
    _of_update: Sequence[Term] = ()  # what the backward pass has left to do for the update

    def _shares_of(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, NodeShares]:
        casts, dtype = self.layer.casts, self._work.dtype
        of_edges = [weight.detach() for weight in self._weights[: 2 * len(self.layer.edge) : 2]]
        if not casts and weight.dtype != dtype:
            casts.extend(torch.empty_like(weight, dtype=dtype) for weight in of_edges)
            torch._foreach_copy_(casts, of_edges)  # one launch, forward
        self._edge_weights = casts or of_edges
        return self._edge_weights[0], FusedShares(weight, bias, self._nodes, self._work)

    def _updated(self, sums: Ends) -> Tensor:
        owned = sums.of_source.new_empty(self.layer.graph.n_owned, sums.of_source.shape[1])
        self._launch_update(self._totals(sums), owned)
        return owned

    def _launch_update(
        self,
        totals: Sequence[Tensor],
        read: Tensor,
        grad: Tensor | None = None,
        grads: Tensor | None = None,
        of_sums: Sequence[Tensor] = (),
    ) -> None:
        """Makes the nodes' next rows in `read`, or all that their `grad` gives."""
        rows_of, n_owned = (*totals, *self._nodes), self.layer.graph.n_owned
        first, bias, *others = self._of_nodes(self._weights)
        n_rows, each = (n_owned, 1) if grad is None else (len(rows_of[0]), 2)
        n_products = len(rows_of) + each * len(others) // 2 + len(of_sums)
        given = read, None if grad is None else grad.contiguous(), grads, tuple(of_sums)
        pointers = rows_of, first, first.stride(0), bias, tuple(others), *given
        fused.launch("update", self._work.dtype, pointers, (n_rows, n_owned), n_products)

    def _of_nodes(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Returns those of the weights, or of their gradients, that are the update's."""
        return [weight.detach() for weight in weights[self._n_edge :]]

    def update_backward(self, grad: Tensor, of_x: Tensor, of_weights: Sequence[Tensor]) -> Ends:
        edge_index, layers = self.layer.graph.edge_index, len(self.layer.node)
        totals = self._totals(Ends.between(*self._states.take_sums(), edge_index))
        (n_nodes, hidden), rows = of_x.shape, self._work.rows
        read = rows("read by nodes", (layers - 1) * n_nodes, hidden)
        grads = rows("gradients of nodes", layers * n_nodes, hidden)
        of_sums = [rows(f"of sums {k}", n_nodes, hidden) for k in range(len(totals))]
        with traced(f"layer {self.layer.i} node, backward"):
            self._launch_update(totals, read, grad, grads, of_sums)
        of_first, of_bias, *others = self._of_nodes(of_weights)
        first, *later = grads.split(n_nodes)
        columns = zip([*totals, *self._nodes], of_first.split(hidden, dim=1), strict=True)
        terms = [Term(first, values, of_columns) for values, of_columns in columns]
        terms[0] = terms[0]._replace(of_bias=of_bias)
        terms += map(Term, later, read.split(n_nodes), others[::2], others[1::2])
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
            columns.append(self._of_nodes(self._weights)[0].split(hidden, dim=1)[-parts:])
        weights = [side[part] for part in range(parts) for side in columns]
        fused.products(rows_of, weights, None, made, dtype, transposed=True, written=written)
        terms: list[Term] = []
        for grads, of_side in zip(shares, self._shares.columns(of_weights[0]), strict=True):
            terms += map(Term, [grads] * parts, self._nodes, of_side)
        terms[0] = terms[0]._replace(of_bias=of_weights[1])
        weights_backward([*terms, *self._of_update], dtype)
