"""A layer's pass over its edges in fused launches (fused.py) on GPUs; shapes as in passes.py."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bigtrk.models.edges import fused
from bigtrk.models.edges.fused_mlp import FusedMLP, mlp_of, tile_of
from bigtrk.models.edges.fused_nodes import FusedNodePass
from bigtrk.models.edges.passes import Activation, ChunkedMLP, Layer
from bigtrk.models.edges.schedule import rows_at_once
from bigtrk.models.edges.states import Block, Rows
from bigtrk.models.edges.triton_passes import sum_at_ends
from bigtrk.models.protocol import Ends
from bigtrk.tracing import traced


class FusedEdgePass(FusedNodePass):
    """`EdgePass` in fused launches; the backward pass repeats the products."""

    @property
    def _n_fused(self) -> int:
        """The number of weights and biases in the MLP of the layer's edges."""
        return 2 * len(self.layer.edge)

    @classmethod
    def maker(cls, layer: Layer, weights: Sequence[Tensor]) -> Callable[..., Tensor]:
        # Launches overwrite. But without edges none runs, and a decoder in chunks adds.
        of_head = weights[2 * len(layer.edge) :]
        adds = layer.head and tile_of(of_head, layer.head, layer.graph.work) is None
        return torch.zeros_like if adds or not layer.graph.edges.n_edges else torch.empty_like

    def _in_chunks(self) -> list[Activation]:
        return list(self.layer.head)

    def _block_forward(self, block: Block, sums: Ends) -> None:
        [made] = block.made
        self._launch(block)
        sum_at_ends(made, sums, adds=block.rows.start > 0)

    def _launch(self, block: Block) -> None:
        """Writes a block's next state; while halo rows travel, first edges that read none."""
        [made], ends = block.made, self._ends.of(block.rows)
        weights = self._weights[: self._n_fused]
        interior = 0 if self._has_halo else self.layer.graph.n_interior - block.rows.start
        # Whole tiles, so that programs compute the same rows as in one launch.
        interior -= interior % rows_at_once(made.dtype)
        bounds = [0, interior, len(made)] if 0 < interior < len(made) else [0, len(made)]
        for rows in map(slice, bounds, bounds[1:]):
            self._await_halo(block.rows.start + rows.stop)
            read = [values[rows] for values in block.read]
            fused.forward(read, ends.of(rows), weights, made[rows])

    def forward_last(self) -> Tensor:
        states, i = self._states, self.layer.i
        with traced(f"layer {i} edge"):
            for block in states.blocks(states.inputs(i), [states.make(i + 1)]):
                self._launch(block)
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
        layer, weights = self.layer, self._weights[self._n_fused :]
        return mlp_of(weights, layer.head, block.read[0], self._work, self.kept)

    def backward(
        self, grad: Tensor | None, outer: Ends | None, of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> None:
        if grad is not None:
            # The gradient of the edges' last product takes the place of their last state.
            state, of_head = self._states.state(self.layer.i + 1), of_weights[self._n_fused :]
            with traced("decoder, backward"):
                for block in self._states.blocks([state], [state]):
                    grad_of, [gradient] = grad[block.rows].__getitem__, block.made
                    adds = block.rows.start > 0
                    self._decoder(block).backward_all(grad_of, None, of_head, gradient, adds=adds)
        super().backward(grad, outer, of_x, of_weights)

    def _read_for_gradient(self) -> list[Rows]:
        if self._outer is None:
            return [self._states.state(self.layer.i + 1)]
        return super()._read_for_gradient()

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
            given = fused.NextLayer(block.read[-1], self._states.weight_after, outer)
        weights, ends = self._weights[: self._n_fused], self._ends.of(block.rows)
        fused.backward(
            inputs, ends, weights, made, given, gradient, of_weights[: len(weights)], adds
        )
        sum_at_ends(gradient, shares, adds)
