"""Encoders of features, and the gradients that the layers add up for those of nodes.

Shapes: M rows, H = hidden.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bigtrk.models.kernels import passes_for
from bigtrk.models.kernels.plain import accumulable
from bigtrk.models.layers.chunked_mlp import Activation, ChunkedMLP
from bigtrk.models.layers.edge_states import EdgeStates
from bigtrk.models.layers.workspace import Workspace


class Encode(torch.autograd.Function):
    """An MLP of features: [M, n_inputs] -> [M, H] in the type of `work`. Features get no gradient.

    The weights are inputs, for the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, work: Workspace, activations: Sequence[Activation], features: Tensor, *weights: Tensor
    ) -> Tensor:
        mlp = ChunkedMLP(weights, activations, [features], work)
        made = features.new_empty(mlp.n_rows, mlp.width, dtype=work.dtype)
        for rows in work.chunks(mlp.n_rows):
            made[rows] = mlp.forward(rows)
        ctx.work, ctx.activations, ctx.weights = work, activations, weights
        ctx.save_for_backward(features, made, *mlp.kept)
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        features, made, *kept = ctx.saved_tensors
        mlp = ChunkedMLP(ctx.weights, ctx.activations, [features], ctx.work, kept=kept)
        grads = [torch.zeros_like(weight) for weight in ctx.weights]
        for rows in ctx.work.chunks(mlp.n_rows):
            mlp.backward(rows, grad[rows], made[rows], None, grads, [None])
        return None, None, None, *grads


class EncodeEdges(torch.autograd.Function):
    """An MLP of edges' features, whose result becomes state 0 of `states`: [E, n_inputs] -> a token
    of it. Features get no gradient; the weights are inputs, for the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        work: Workspace,
        activations: Sequence[Activation],
        states: EdgeStates,
        features: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        kept: list[Tensor] = []
        for block in states.blocks(made=[states.make(0)]):
            [made] = block.made
            mlp = ChunkedMLP(weights, activations, [features[block.rows]], work)
            for rows in work.chunks(mlp.n_rows):
                made[rows] = mlp.forward(rows)
            kept += mlp.kept
        ctx.states, ctx.work, ctx.activations, ctx.weights = states, work, activations, weights
        ctx.save_for_backward(features, *kept)
        return states.token()

    @staticmethod
    @once_differentiable
    def backward(ctx, token: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # noqa: ARG004
        features, *kept = ctx.saved_tensors
        states: EdgeStates = ctx.states
        grads = [torch.zeros_like(weight) for weight in ctx.weights]
        for block in states.blocks([states.state(0), *states.all_gradients()]):
            values = [features[block.rows]]
            mlp = ChunkedMLP(ctx.weights, ctx.activations, values, ctx.work, kept=kept)
            made, *gradients = block.read
            for rows in ctx.work.chunks(mlp.n_rows):
                grad = states.of_encoded([gradient[rows] for gradient in gradients])
                mlp.backward(rows, grad, made[rows], None, grads, [None])
        states.free()
        return None, None, None, None, *grads


class Encoded:
    """Encoded features of nodes [M, H], which every layer reads.

    Each layer adds its part to one gradient [M, H] (float32 at least). The first layer, which reads
    them as its state too, takes the sum: one such tensor, not one per layer.
    """

    def __init__(self, values: Tensor) -> None:
        self.values = values.detach()
        self._gradient: Tensor | None = None

    def add(self, rows: slice, part: Tensor) -> None:
        if self._gradient is None:
            self._gradient = torch.zeros_like(accumulable(self.values))
        passes_for(part.device, part.dtype).add_rows(part, self._gradient[rows])

    def take(self) -> Tensor:
        """Returns the sum over all layers; the next pass starts anew."""
        taken, self._gradient = self._gradient, None
        return torch.zeros_like(self.values) if taken is None else taken
