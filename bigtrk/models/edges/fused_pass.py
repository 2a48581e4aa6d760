"""A layer's pass over its edges in fused launches (fused.py) on GPUs; shapes as in passes.py."""

from collections.abc import Sequence

from torch import Tensor

from bigtrk.models.edges import fused
from bigtrk.models.edges.fused_nodes import FusedNodePass
from bigtrk.models.edges.passes import Activation, ChunkedMLP, Layer, Sink
from bigtrk.models.edges.schedule import Shape
from bigtrk.models.edges.states import Block, Rows, passes_for
from bigtrk.models.edges.triton_passes import sum_at_ends
from bigtrk.models.protocol import Ends
from bigtrk.tracing import traced


def relu_of(made: Tensor, gradient: Tensor) -> Sink:
    """Returns a sink that writes the gradient of the sum whose ReLU is `made` to `gradient`."""
    passes = passes_for(made.device, made.dtype)
    return lambda rows, part: passes.relu_backward(part, made[rows], None, gradient[rows])


class FusedEdgePass(FusedNodePass):
    """`EdgePass` in fused launches, which compute products anew; the decoder is in chunks."""

    def __init__(
        self, layer: Layer, weights: Sequence[Tensor], x: Tensor, kept: Sequence[Tensor] = ()
    ) -> None:
        super().__init__(layer, weights, x, kept)
        fused_weights = self._n_fused = 2 * len(layer.edge)
        dtype, hopper = self._work.dtype, fused.has_hopper(self._work.device)
        self._edge_shape = Shape(x.shape[1], len(layer.edge), self._states.n_inputs, dtype, hopper)
        self._read_weights = list(weights[:fused_weights])
        if self._edge_shape.whole:
            self._read_weights[::2] = self._edge_weights

    def _in_chunks(self) -> list[Activation]:
        return list(self.layer.head)

    def _block_forward(self, block: Block, sums: Ends) -> None:
        [made] = block.made
        self._launch(block)
        sum_at_ends(made, sums, adds=block.rows.start > 0)

    def _launch(self, block: Block) -> None:
        """Makes a block's next state; while halo rows come, first of the edges that read none."""
        [made], ends = block.made, self._ends.of(block.rows)
        for rows in self._launches(block.rows):
            self._await_halo(block.rows.start + rows.stop)
            read = [values[rows] for values in block.read]
            fused.forward(read, ends.of(rows), self._read_weights, made[rows])

    def _launches(self, block: slice) -> list[slice]:
        """Lists a block's launches, whose programs have the same rows as those of one."""
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
            self._await_halo()
        output = self._nodes[0].new_empty(states.n_edges, len(self._weights[-1]))
        with traced("decoder"):
            for block in states.blocks([states.state(i + 1)]):
                mlp, of_block = self._decoder(block), output[block.rows]
                for rows in self._work.chunks(len(of_block)):
                    of_block[rows] = mlp.forward(rows)
                self.kept = mlp.kept
        return output

    def _decoder(self, block: Block) -> ChunkedMLP:
        weights = self._weights[self._n_fused :]
        return ChunkedMLP(weights, self._mlp_of_edges, block.read, self._work, kept=self.kept)

    def backward(
        self, grad: Tensor | None, outer: Ends | None, of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> None:
        if grad is not None:
            # The gradient of the edges' last product takes the place of their last state.
            state, of_head = self._states.state(self.layer.i + 1), of_weights[self._n_fused :]
            with traced("decoder, backward"):
                for block in self._states.blocks([state], [state]):
                    mlp, sink = self._decoder(block), relu_of(block.read[0], block.made[0])
                    for rows in self._work.chunks(mlp.n_rows):
                        mlp.backward(rows, grad[block.rows][rows], None, None, of_head, [sink])
        super().backward(grad, outer, of_x, of_weights)

    def _read_for_gradient(self) -> list[Rows]:
        if self._outer is None:
            return [self._states.state(self.layer.i + 1)]
        return super()._read_for_gradient()

    def _block_backward(
        self, block: Block, of_weights: Sequence[Tensor], shares: Ends, sums: Ends | None
    ) -> None:
        n_inputs, [gradient] = self._states.n_inputs, block.made
        inputs, made, adds = block.read[:n_inputs], block.read[n_inputs], block.rows.start > 0
        given = None
        if self._outer is not None:
            outer = self._outer.of(block.rows)
            given = fused.NextLayer(block.read[-1], self._states.weight_after, outer)
        weights, ends = self._read_weights, self._ends.of(block.rows)
        fused.backward(
            inputs, ends, weights, made, given, gradient, of_weights[: len(weights)], adds
        )
        others = (None, None) if sums is None else (inputs[0], sums)
        sum_at_ends(gradient, shares, adds, *others)
