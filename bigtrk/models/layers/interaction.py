"""A layer of the Interaction GNN: all edges, then the owned nodes; its gradients by hand.

Between forward and backward it keeps the nodes it read, and edge_states.py the edges; where the
workspace keeps products, it keeps those too.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, H = hidden.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bigtrk.models.layers.edge_pass import FromNext, Given
from bigtrk.models.layers.encoding import Encoded
from bigtrk.models.layers.fused_edge_pass import edge_pass
from bigtrk.models.layers.graph_pass import Layer
from bigtrk.models.layers.workspace import Workspace


class Interact(torch.autograd.Function):
    """Reads the edges' state i [E, H], of which it gets a token, and nodes x [N, H]; gives the
    token of state i + 1 and the owned nodes [n_owned, H], float32 at least. Without a node update
    it gives the output [E, W] of the edges' MLP, and None.

    `weights` are the edge MLP's, then the node MLP's, in turn weight and bias; they are inputs, for
    the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        layer: Layer,
        token: Tensor,  # noqa: ARG004  # it tells autograd which layer is before
        x: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        encoded, work, halo = layer.graph.nodes, layer.graph.work, layer.graph.halo
        # The products read the nodes in this type; bf16 takes half of the memory.
        x = encoded.values if layer.i == 0 and encoded else halo.read(x, work.dtype)
        edges = edge_pass(layer, weights, x)
        made, owned = edges.forward() if layer.node else (edges.forward_last(), None)
        ctx.layer, ctx.weights = layer, weights
        ctx.save_for_backward(x, *edges.kept)
        return made, owned

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[no-untyped-def]
        ctx, grad: Tensor, grad_owned: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, *kept = ctx.saved_tensors
        layer: Layer = ctx.layer
        # Comes first: as a thread's first operation on a GPU a product of cuBLAS warns.
        of_x = torch.zeros_like(x, dtype=layer.graph.work.sums)
        edges = edge_pass(layer, ctx.weights, x, kept)
        of_weights = edges.new_gradients()
        if grad_owned is None:
            edges.backward(Given(grad), of_x, of_weights)
        else:
            outer = edges.update_backward(grad_owned, of_x, of_weights)
            edges.backward(FromNext(layer.graph.edges, outer), of_x, of_weights)
        if layer.i == 0 and layer.graph.nodes:
            _add_encoded(layer.graph.nodes, of_x, layer.graph.work)
        return None, layer.graph.edges.token(), of_x, *of_weights


def _add_encoded(encoded: Encoded, total: Tensor, work: Workspace) -> None:
    """Adds what all layers gave to the gradient of `encoded`.

    This is done in chunks, since a CPU makes float32 copies of both where one is bfloat16: at once
    they took 43 of a rank's 654 MiB (150,000 edges, hidden 64).
    """
    taken = encoded.take()
    for rows in work.chunks(len(total)):
        total[rows] += taken[rows]
