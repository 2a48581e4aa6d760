"""A layer's pass, encoders and the edge decoder in fused launches (fused.py) on GPUs.

Shapes as in passes.py; M rows, F features, W outputs of a decoder.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bigtrk.models.edges import fused, schedule
from bigtrk.models.edges.fused import NextLayer, Term, WholeMLP
from bigtrk.models.edges.passes import Activation, ChunkedMLP, EdgePass, Layer
from bigtrk.models.edges.states import Block, Workspace
from bigtrk.models.edges.triton_passes import sum_at_ends
from bigtrk.models.protocol import Ends
from bigtrk.tracing import traced


def tile_of(
    weights: Sequence[Tensor], activations: Sequence[Activation], of: Workspace
) -> schedule.WholeRows | None:
    """Returns the tile for launching an MLP with these weights; None if it must run in chunks."""
    (hidden, n_inputs), layers, n_outputs = weights[0].shape, len(activations), 0
    if of.dtype != torch.bfloat16 or not fused.usable(of.device, of.dtype, hidden, 1):
        return None
    if activations[-1] == "linear":
        layers, n_outputs = layers - 1, len(weights[-1])
    return schedule.rows_tile(hidden, n_inputs, layers, n_outputs, fused.capability(of.device))


def mlp_of(
    weights: Sequence[Tensor],
    activations: Sequence[Activation],
    rows: Tensor,
    of: Workspace,
    kept: Sequence[Tensor] = (),
) -> "ChunkedMLP | FusedMLP":
    """Makes the fastest form of an MLP over `rows` [M, F]."""
    tile = tile_of(weights, activations, of)
    if tile is None:
        return ChunkedMLP(weights, activations, [rows], of, kept=kept)
    norms = tuple(one == "norm" for one in activations if one != "linear")
    n_outputs = len(weights[-1]) if activations[-1] == "linear" else 0
    read, stages = [rows.contiguous()], schedule.ROWS_STAGES
    return FusedMLP(read, weights, norms, tile, of.dtype, n_outputs=n_outputs, stages=stages)


class FusedMLP(WholeMLP):
    """A `ChunkedMLP` launched for all rows [M, F] at once; the backward pass repeats the products.
    Linear layers have width H; a last one without an activation has few outputs W.
    """

    kept: Sequence[Tensor] = ()

    def forward_all(self, out: Tensor) -> None:
        """Writes the last layer's rows [M, H], or the outputs [M, W], to `out`."""
        self.forward(out, (self.rows_of_program, *self.tile[:2]))

    def backward_all(
        self,
        grad_of: Callable[[slice], Tensor],
        made: Tensor | None,  # noqa: ARG002  # it is computed anew
        grads: Sequence[Tensor],
        gradient: Tensor | None = None,
        *,
        adds: bool = False,
    ) -> None:
        """Propagates as ChunkedMLP does, but writes `grads`; only with `adds` it adds to them."""
        grad = grad_of(slice(0, len(self.read[0]))).contiguous()
        self.backward(None, grad, gradient, grads, adds)
        if self.n_outputs and adds:
            grads[-1].add_(grad.sum(0))
        elif self.n_outputs:
            torch.sum(grad, 0, out=grads[-1])


class FusedEdgePass(EdgePass):
    """`EdgePass` in fused launches; the backward pass repeats the products."""

    _is_fused = True
    _of_update: Sequence[Term] = ()  # weight gradients of the node update, still to be computed

    def __init__(
        self, layer: Layer, weights: Sequence[Tensor], x: Tensor, kept: Sequence[Tensor] = ()
    ) -> None:
        super().__init__(layer, weights, x)
        # A launch keeps nothing. After the edges' weights come those of the decoder or of nodes.
        self._n_edge, self.kept, self._kept_of_nodes = 2 * len(layer.edge), list(kept), kept

    @classmethod
    def maker(cls, layer: Layer, weights: Sequence[Tensor]) -> Callable[..., Tensor]:
        # Launches overwrite. But without edges none runs, and a decoder in chunks adds.
        of_head = weights[2 * len(layer.edge) :]
        adds = layer.head and tile_of(of_head, layer.head, layer.graph.work) is None
        return torch.zeros_like if adds or not layer.graph.edges.n_edges else torch.empty_like

    def _share(self, rows: slice) -> None:
        nodes, shares = ([part[rows] for part in some] for some in (self._nodes, self._ends[:2]))
        weights = [columns for side in self._sides for columns in side.columns]
        options = {"transposed": False, "written": 2}
        fused.products(nodes, weights, self._bias, shares, self._work.dtype, **options)

    def _block_forward(self, block: Block, sums: Ends | None) -> None:
        """Writes a block's next state; while halo rows travel, first edges that read none."""
        [made], ends = block.made, self._ends.of(block.rows)
        weights = self._weights[: self._n_edge]
        interior = 0 if self._has_halo else self.layer.graph.n_interior - block.rows.start
        # Whole tiles, so that programs compute the same rows as in one launch.
        interior -= interior % schedule.rows_at_once(made.dtype)
        bounds = [0, interior, len(made)] if 0 < interior < len(made) else [0, len(made)]
        for rows in map(slice, bounds, bounds[1:]):
            self._await_halo(block.rows.start + rows.stop)
            read = [values[rows] for values in block.read]
            fused.forward(read, ends.of(rows), weights, made[rows])
        if sums is not None:
            sum_at_ends(made, sums, adds=block.rows.start > 0)

    def forward_last(self) -> Tensor:
        states, i = self._states, self.layer.i
        with traced(f"layer {i} edge"):
            for block in states.blocks(states.inputs(i), [states.make(i + 1)]):
                self._block_forward(block, None)
            self._await_halo()
        size = states.n_edges, len(self._weights[-1])
        output = self._nodes[0].new_empty(size, dtype=self._work.sums)
        with traced("decoder"):
            for block in states.blocks([states.state(i + 1)]):
                decoder = self._decoder(block)
                decoder.forward_all(output[block.rows])
                self.kept = [*decoder.kept]
        return output

    def _decoder(self, block: Block) -> ChunkedMLP | FusedMLP:
        weights = self._weights[self._n_edge :]
        return mlp_of(weights, self.layer.head, block.read[0], self._work, self.kept)

    def _sums_of_edges(self) -> Ends:
        """Returns new sums, kept for the backward pass; in the products' type if one block."""
        work, layer = self._work, self.layer
        dtype = work.dtype if layer.in_out and self._states.in_one_block else work.sums
        return self._new_sums(*(torch.empty_like(self._nodes[0], dtype=dtype) for _ in range(2)))

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
        read = rows("read by nodes", (layers - 1) * n_nodes, hidden).view(layers - 1, *of_x.shape)
        grads = rows("gradients of nodes", layers * n_nodes, hidden).view(layers, *of_x.shape)
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

    def backward(
        self, grad: Tensor | None, outer: Ends | None, of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> None:
        if grad is not None:
            # The gradient of the edges' last product takes the place of their last state.
            state, of_head = self._states.state(self.layer.i + 1), of_weights[self._n_edge :]
            with traced("decoder, backward"):
                for block in self._states.blocks([state], [state]):
                    grad_of, [gradient] = grad[block.rows].__getitem__, block.made
                    adds = block.rows.start > 0
                    self._decoder(block).backward_all(grad_of, None, of_head, gradient, adds=adds)
        super().backward(grad, outer, of_x, of_weights)

    def _block_backward(
        self,
        block: Block,
        of_weights: Sequence[Tensor],
        shares: Ends,
        sums: Ends | None,  # noqa: ARG002
    ) -> None:
        n_inputs, [gradient] = self._states.n_inputs, block.made
        inputs, made, adds = block.read[:n_inputs], block.read[n_inputs], block.rows.start > 0
        given = None
        if self._outer is not None:
            outer = self._outer.of(block.rows)
            given = NextLayer(block.read[-1], self._states.gradients[-1].of_state, outer)
        weights, ends = self._weights[: self._n_edge], self._ends.of(block.rows)
        fused.backward(inputs, ends, weights, made, given, gradient, of_weights, adds)
        sum_at_ends(gradient, shares, adds)

    def _shares_backward(
        self, shares: tuple[Tensor, Tensor], of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> None:
        encoded, dtype, parts = self.layer.graph.nodes, self._work.dtype, len(self._nodes)
        written, made = 1, [of_x]
        if encoded:
            total, adds = encoded.total()
            written, made = 1 if adds else 2, [of_x, total]
        columns, rows_of = [side.columns for side in self._sides], [*shares]
        if self._of_update:
            rows_of.append(self._of_update[0].grads)
            first = self._node_part(self._weights)[0]
            columns.append(first.split(of_x.shape[1], dim=1)[-parts:])
        weights = [side[part] for part in range(parts) for side in columns]
        fused.products(rows_of, weights, None, made, dtype, transposed=True, written=written)
        terms: list[Term] = []
        of_sides = self._of_nodes(of_weights[0])
        for grads, side, of_side in zip(shares, self._sides, of_sides, strict=True):
            terms += map(Term, [grads] * parts, self._nodes, side.split(of_side))
        terms[0] = terms[0]._replace(of_bias=of_weights[1])
        fused.weights_backward([*terms, *self._of_update], dtype)
