"""The forms in which ACTS calls a model: what it hands over, and what comes back.

Shapes: N nodes, E edges, F columns of x, D dimensions of an embedding.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bigtrk.formats.acts.columns import EDGE_SCALES
from bigtrk.formats.acts.features import EdgeFeatures, NodeFeatures, edge_attributes, outwards
from bigtrk.formats.acts.networks import EdgeUpdate, PlainGNN, perceptron
from bigtrk.formats.acts.stage import Stage
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.mlps import EdgeMLP, Embedding

EDGE_ATTR = "_edge_attr"  # of the names of files whose models are given edge_attr
OUTPUT = "output"


class AttributedEdges(nn.Module):
    """An edge model for ACTS's module map, which gives features of edges, too."""

    def __init__(self, nodes: NodeFeatures, edges: EdgeFeatures, network: nn.Module) -> None:
        super().__init__()
        self.nodes, self.edges, self.network = nodes, edges, network

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Computes logits [E, 1] of x [N, F], edge_index [2, E] and edge_attr [E, 6]."""
        nodes, edges = self.nodes(x), self.edges(edge_attr)
        made: Tensor = self.network(nodes, edges, edge_index[0], edge_index[1])
        return made


class BareEdges(nn.Module):
    """An edge model for ACTS's metric learning, which gives pairs of hits alone: it orders them
    outwards and computes their features itself.
    """

    def __init__(self, nodes: NodeFeatures, edges: EdgeFeatures, network: nn.Module) -> None:
        super().__init__()
        self.nodes, self.edges, self.network = nodes, edges, network

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Computes logits [E, 1] of x [N, F] and edge_index [2, E]."""
        source, destination = outwards(x, edge_index)
        edges = self.edges(edge_attributes(x, source, destination))
        made: Tensor = self.network(self.nodes(x), edges, source, destination)
        return made


class Hits(nn.Module):
    """An embedding of hits."""

    def __init__(self, nodes: NodeFeatures, network: nn.Module) -> None:
        super().__init__()
        self.nodes, self.network = nodes, network

    def forward(self, x: Tensor) -> Tensor:
        """Embeds hits: x [N, F] -> [N, D]."""
        made: Tensor = self.network(self.nodes(x))
        return made


@dataclass(frozen=True)
class Form:
    """A form of a model. suffix: of the names of its files. inputs: an example of each tensor that
    it is called with, by name; dynamic: what those dimensions count that differ from call to call.
    """

    suffix: str
    module: nn.Module
    inputs: Mapping[str, Tensor]

    @property
    def dynamic(self) -> dict[str, dict[int, str]]:
        counted = {"x": {0: "nodes"}, "edge_index": {1: "edges"}, "edge_attr": {0: "edges"}}
        output = {0: "edges" if "edge_index" in self.inputs else "nodes"}
        return {**{name: counted[name] for name in self.inputs}, OUTPUT: output}


def forms_of(stage: Stage) -> list[Form]:
    """Makes the forms of a trained model, for inference."""
    nodes = NodeFeatures(stage.columns, stage.data.node_features)
    x = torch.zeros(3, len(stage.columns.names))
    if isinstance(stage.model, Embedding):
        network = stage.model.network
        embed = Hits(nodes, perceptron(network.weights(), network.activations))
        return [Form("", embed.eval(), {"x": x})]
    edges, classify = EdgeFeatures(stage.data.edge_features), _classifier(stage)
    bare = {"x": x, "edge_index": torch.tensor([[0, 1, 0, 2], [1, 2, 2, 0]])}
    attributed = {**bare, "edge_attr": torch.zeros(4, len(EDGE_SCALES))}
    return [
        Form("", BareEdges(nodes, edges, classify).eval(), bare),
        Form(EDGE_ATTR, AttributedEdges(nodes, edges, classify).eval(), attributed),
    ]


def _classifier(stage: Stage) -> nn.Module:
    if isinstance(stage.model, InteractionGNN):
        return PlainGNN(stage.model)
    assert isinstance(stage.model, EdgeMLP), "check_exportable refuses the others"
    network = stage.model.network
    return EdgeUpdate(network.weights(), network.activations, len(stage.data.node_features))
