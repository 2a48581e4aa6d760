"""Trained models in plain operations, for inference alone: what ours compute in functions of our
own, in buffers and in chunks, ONNX and TorchScript cannot say.

They have the weights of the model that they are made of, and compute in float32 whatever its
precision. TorchScript compiles them.

Shapes: N nodes, E edges, F and G node and edge features (of order one), H = hidden.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bigtrk.models.edges.mlp import Activation
from bigtrk.models.edges.plain import EPS
from bigtrk.models.interaction_gnn import InteractionGNN, InteractionLayer


def perceptron(weights: Sequence[Tensor], activations: Sequence[Activation]) -> nn.Sequential:
    """Makes the MLP of `weights`, in turn the weight and bias of its linear layers."""
    steps: list[nn.Module] = []
    for weight, bias, activation in zip(weights[::2], weights[1::2], activations, strict=True):
        steps += [_linear(weight, bias), *_activated(activation, len(bias))]
    return nn.Sequential(*steps)


def _activated(activation: Activation, width: int) -> list[nn.Module]:
    if activation == "norm":
        return [nn.LayerNorm(width, eps=EPS, elementwise_affine=False), nn.ReLU()]
    return [nn.ReLU()] if activation == "relu" else []


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    # Nothing is drawn on "meta"; the weights take the place of what is there.
    made = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    made.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return made


class EdgeUpdate(nn.Module):
    """An MLP that reads [edge, source, destination], the last two of `width` columns each.

    What the nodes add to its first product is computed once per node, as in NodeShares.
    """

    def __init__(
        self, weights: Sequence[Tensor], activations: Sequence[Activation], width: int
    ) -> None:
        super().__init__()
        weight, bias, *others = weights
        widths = [weight.shape[1] - 2 * width, width, width]
        of_edge, of_source, of_destination = weight.split(widths, dim=1)
        self.of_edge = _linear(of_edge)
        self.of_source = _linear(of_source, bias)
        self.of_destination = _linear(of_destination)
        rest = perceptron(others, activations[1:])
        self.rest = nn.Sequential(*_activated(activations[0], len(bias)), *rest)

    def forward(self, x: Tensor, e: Tensor, source: Tensor, destination: Tensor) -> Tensor:
        of_nodes = self.of_source(x).index_select(0, source)
        of_nodes = of_nodes + self.of_destination(x).index_select(0, destination)
        made: Tensor = self.rest(self.of_edge(e) + of_nodes)
        return made


class NodeUpdate(nn.Module):
    """An MLP that reads a node and the sums of its edges, incoming and outgoing."""

    def __init__(self, layer: InteractionLayer, in_out: bool) -> None:
        super().__init__()
        self.in_out = in_out
        self.network = perceptron(layer.weights("node_mlp"), layer.activations)

    def forward(self, x: Tensor, e: Tensor, source: Tensor, destination: Tensor) -> Tensor:
        incoming, outgoing = summed(e, destination, x), summed(e, source, x)
        inputs = [incoming, outgoing] if self.in_out else [incoming + outgoing]
        inputs.append(x)
        made: Tensor = self.network(torch.cat(inputs, 1))
        return made


def summed(values: Tensor, ends: Tensor, x: Tensor) -> Tensor:
    """Sums the edges' values [E, H] at their ends [E], rows of x: [N, H]."""
    zeros = values.new_zeros([x.shape[0], values.shape[1]])
    return zeros.scatter_add(0, ends.unsqueeze(1).expand_as(values), values)


class InteractionStep(nn.Module):
    """A layer of the Interaction GNN but for the last: all edges, then all nodes."""

    def __init__(self, layer: InteractionLayer, width: int, in_out: bool) -> None:
        super().__init__()
        self.edges = EdgeUpdate(layer.weights("edge_mlp"), layer.activations, width)
        self.nodes = NodeUpdate(layer, in_out)

    def forward(
        self, x: Tensor, e: Tensor, source: Tensor, destination: Tensor
    ) -> tuple[Tensor, Tensor]:
        e = self.edges(x, e, source, destination)
        return self.nodes(x, e, source, destination), e


class PlainGNN(nn.Module):
    """The Interaction GNN, without its head for pT."""

    def __init__(self, model: InteractionGNN) -> None:
        super().__init__()
        config, nodes, edges = model.config, model.node_encoder, model.edge_encoder
        self.concatenate = config.concatenate
        self.node_encoder = perceptron(nodes.weights(), nodes.activations)
        self.edge_encoder = perceptron(edges.weights(), edges.activations)
        width = config.hidden * (2 if config.concatenate else 1)
        distinct = [layer for layer in model.layers if isinstance(layer, InteractionLayer)]
        *layers, last = distinct * config.layers if config.shared_weights else distinct
        steps = {layer: InteractionStep(layer, width, config.in_out) for layer in layers}
        self.steps = nn.ModuleList(steps[layer] for layer in layers)
        *shared, weight, bias = model.decoder.weights()
        decoder = [*shared, weight[:1], bias[:1]]  # row 1 is of the pT
        self.last = EdgeUpdate(
            last.weights("edge_mlp") + decoder,
            last.activations + model.decoder.activations,
            width,
        )

    def forward(self, x: Tensor, e: Tensor, source: Tensor, destination: Tensor) -> Tensor:
        """Computes logits [E, 1] of x [N, F], edge features e [E, G], source, destination [E]."""
        x = self.node_encoder(x)
        e = self.edge_encoder(e)
        first_x, first_e = x, e
        for step in self.steps:
            if self.concatenate:
                x, e = torch.cat([x, first_x], 1), torch.cat([e, first_e], 1)
            x, e = step(x, e, source, destination)
        if self.concatenate:
            x, e = torch.cat([x, first_x], 1), torch.cat([e, first_e], 1)
        made: Tensor = self.last(x, e, source, destination)
        return made
