"""The pass of a layer over its edges in a few launches on a GPU, whatever their number.

Shapes: N nodes, E edges, H = hidden, M rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bigtrk.models.kernels import fused
from bigtrk.models.kernels.plain import Ends
from bigtrk.models.kernels.triton_passes import sum_at_ends
from bigtrk.models.kernels.work import Shape
from bigtrk.models.layers.chunked_mlp import Activation, ChunkedMLP
from bigtrk.models.layers.edge_pass import EdgePass, FromNext, Given, OfOutput, Source, relu_of
from bigtrk.models.layers.graph_pass import Layer
from bigtrk.models.stores.store import Block, Rows
from bigtrk.tracing import traced


def edge_pass(
    layer: Layer, weights: Sequence[Tensor], x: Tensor, kept: Sequence[Tensor] = ()
) -> EdgePass:
    """Returns the fastest pass over a layer's edges; `kept` is what it kept in the forward pass."""
    work, (_, hidden) = layer.graph.work, x.shape
    is_fused = fused.usable(work.device, work.dtype, hidden, len(layer.edge))
    return (FusedEdgePass if is_fused else EdgePass)(layer, weights, x, kept)


class FusedEdgePass(EdgePass):
    """The same as `EdgePass`; only the decoder is computed in chunks. It keeps no product of the
    edges: what the backward pass needs of them is computed anew, within a launch.

    The first block writes where later blocks add, so that little is cleared before.
    """

    def __init__(
        self, layer: Layer, weights: Sequence[Tensor], x: Tensor, kept: Sequence[Tensor] = ()
    ) -> None:
        super().__init__(layer, weights, x, kept)
        width, n_inputs, work = x.shape[1], self._states.n_inputs, self._work
        hopper = fused.has_hopper(work.device)
        self._edge_shape = Shape(width, len(layer.edge), n_inputs, work.dtype, hopper)
        self._read_weights = self._as_read()

    def _in_chunks(self) -> list[Activation]:
        return list(self.layer.head)

    @property
    def _edge_weights(self) -> Sequence[Tensor]:
        return self._weights[: 2 * len(self.layer.edge)]

    def _as_read(self) -> Sequence[Tensor]:
        """Returns the edges' weights and biases as their launches read them."""
        weights = self._edge_weights
        if not self._edge_shape.whole:
            return weights
        others = [w.detach().to(self._work.dtype) if w.ndim > 1 else w for w in weights[1:]]
        return [self._shares.weight, *others]

    def new_gradients(self) -> list[Tensor]:
        if not self._states.n_edges:
            return super().new_gradients()
        n_fused = len(self._edge_weights)
        made = [
            torch.empty_like(weight) if i < n_fused else torch.zeros_like(weight)
            for i, weight in enumerate(self._weights)
        ]
        self._shares.clear(made[0], made[1])
        return made

    def _new_sums(self) -> Ends:
        if not self._states.n_edges:
            return super()._new_sums()
        n_nodes, hidden = self._nodes[0].shape
        outgoing = self._work.sums_of_rows("outgoing", n_nodes, hidden)
        incoming = self._work.sums_of_rows("incoming", n_nodes, hidden)
        return Ends.between(outgoing, incoming, self.layer.graph.edge_index)

    def _sums_before(self, of_x: Tensor) -> Ends:
        if not self._states.n_edges:
            return super()._sums_before(of_x)
        sums = torch.empty_like(of_x), torch.empty_like(of_x)
        return Ends.between(*sums, self.layer.graph.edge_index)

    def _block_forward(self, block: Block, sums: Ends) -> None:
        [made] = block.made
        self._launch(block)
        sum_at_ends(made, sums, adds=block.rows.start > 0)

    def _launch(self, block: Block) -> None:
        """Makes a block's next state, at once or, while halo rows come, in edges that do not read
        them and in the others.
        """
        [made], ends = block.made, self._ends.of(block.rows)
        for rows in self._launches(block.rows):
            self._await_halo(block.rows.start + rows.stop)
            read = [values[rows] for values in block.read]
            fused.forward(read, ends.of(rows), self._read_weights, made[rows])

    def _launches(self, block: slice) -> list[slice]:
        """Lists the rows of a block's launches, whose programs have the same rows as those of one
        would, and so the same bits.
        """
        n_rows = block.stop - block.start
        if not self._has_halo:
            interior = self.layer.graph.n_interior - block.start
            interior -= interior % self._edge_shape.forward_rows
            if 0 < interior < n_rows:
                return [slice(0, interior), slice(interior, n_rows)]
        return [slice(0, n_rows)]

    def forward_last(self) -> Tensor:
        states, i = self._states, self.layer.i
        with traced(f"layer {i} edge"):
            for block in states.blocks(states.inputs(i), [states.make(i + 1)]):
                self._launch(block)
            self._await_all()
        output = self._nodes[0].new_empty(states.n_edges, len(self._weights[-1]))
        with traced("decoder"):
            for block in states.blocks([states.state(i + 1)]):
                mlp, of_block = self._decoder(block), output[block.rows]
                for rows in self._work.chunks(len(of_block)):
                    of_block[rows] = mlp.forward(rows)
                self.kept = mlp.kept
        return output

    def _decoder(self, block: Block) -> ChunkedMLP:
        weights = self._weights[len(self._edge_weights) :]
        return ChunkedMLP(weights, self._mlp_of_edges, block.read, self._work, kept=self.kept)

    def backward(self, source: Source, of_x: Tensor, of_weights: Sequence[Tensor]) -> None:
        if isinstance(source, Given):
            source = self._decoder_backward(source, of_weights[len(self._edge_weights) :])
        super().backward(source, of_x, of_weights)

    def _decoder_backward(self, source: Given, of_weights: Sequence[Tensor]) -> "_Decoded":
        """Puts the gradient of the edges' last product in the place of their last state."""
        states = self._states
        state = states.state(self.layer.i + 1)
        with traced("decoder, backward"):
            for block in states.blocks([state], [state]):
                mlp, sink = self._decoder(block), relu_of(block.read[0], block.made[0])
                for rows in self._work.chunks(mlp.n_rows):
                    mlp.backward(rows, *source.of(block, rows), of_weights, [sink])
        return _Decoded(state)

    def _block_backward(
        self,
        block: Block,
        source: Source,
        of_weights: Sequence[Tensor],
        shares: Ends,
        sums: Ends | None,
    ) -> None:
        n_inputs, [gradient] = self._states.n_inputs, block.made
        inputs, made, adds = block.read[:n_inputs], block.read[n_inputs], block.rows.start > 0
        given = None
        if isinstance(source, FromNext):
            after = block.read[-1]
            given = fused.NextLayer(after, self._states.weight_after, source.outer)
        weights, ends = self._read_weights, self._ends.of(block.rows)
        fused.backward(
            inputs, ends, weights, made, given, gradient, of_weights[: len(weights)], adds
        )
        others = (None, None) if sums is None else (inputs[0], sums)
        sum_at_ends(gradient, shares, adds, *others)


@dataclass(frozen=True)
class _Decoded:
    """The gradient of the edges' last product, which is there in the place of their state."""

    gradient: Rows

    def read(self, i: int) -> list[Rows]:  # noqa: ARG002  # as of the others
        return [self.gradient]

    def of(self, block: Block, rows: slice) -> OfOutput:
        return OfOutput(block.read[-1][rows], None, None)
