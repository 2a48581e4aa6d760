"""Networks of PyG's layers as users write them, and some that cannot be trained in sectors."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    CGConv,
    EdgeConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GINEConv,
    GraphConv,
    NNConv,
    PNAConv,
    ResGatedGraphConv,
    SAGEConv,
    TransformerConv,
)

WIDTH = 6
# Of degrees 0 to 5, as a histogram of training events has it.
DEGREES = [2, 3, 5, 7, 4, 1]
AGGREGATIONS = ["mean", "min", "max", "std"]
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]


def _mlp(n_inputs: int, n_outputs: int) -> nn.Sequential:
    hidden = nn.Linear(n_inputs, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(WIDTH, n_outputs))


def _pna(n: int, edges: int, flow: str) -> nn.Module:
    degrees = torch.tensor(DEGREES)
    options = {"edge_dim": edges, "towers": 2, "flow": flow}
    made: nn.Module = PNAConv(n, WIDTH, AGGREGATIONS, SCALERS, degrees, **options)
    return made


# A layer of so many inputs and edge features, which flows so.
LAYERS: dict[str, Callable[[int, int, str], nn.Module]] = {
    "SAGEConv": lambda n, _, flow: SAGEConv(n, WIDTH, flow=flow),
    "SAGEConv max": lambda n, _, flow: SAGEConv(n, WIDTH, "max", normalize=True, flow=flow),
    "GATConv": lambda n, e, flow: GATConv(n, 3, heads=2, edge_dim=e, flow=flow),
    "GATConv no loops": lambda n, e, flow: GATConv(
        n, 3, heads=2, edge_dim=e, add_self_loops=False, flow=flow
    ),
    "GATv2Conv": lambda n, e, flow: GATv2Conv(n, 3, heads=2, edge_dim=e, flow=flow),
    "GINConv": lambda n, _, flow: GINConv(_mlp(n, WIDTH), train_eps=True, flow=flow),
    "GINEConv": lambda n, e, flow: GINEConv(_mlp(n, WIDTH), edge_dim=e, flow=flow),
    "TransformerConv": lambda n, e, flow: TransformerConv(
        n, 3, heads=2, edge_dim=e, beta=True, flow=flow
    ),
    "NNConv": lambda n, e, flow: NNConv(n, WIDTH, _mlp(e, n * WIDTH), aggr="mean", flow=flow),
    "EdgeConv": lambda n, _, flow: EdgeConv(_mlp(2 * n, WIDTH), flow=flow),
    "PNAConv": _pna,
    "ResGatedGraphConv": lambda n, e, flow: ResGatedGraphConv(n, WIDTH, edge_dim=e, flow=flow),
    "GENConv": lambda n, e, flow: GENConv(
        n, WIDTH, "softmax", learn_t=True, norm="layer", edge_dim=e, flow=flow
    ),
    "GraphConv": lambda n, _, flow: GraphConv(n, WIDTH, flow=flow),
    "CGConv": lambda n, e, flow: CGConv(n, e, aggr="mean", flow=flow),
    "GCNConv": lambda n, _, flow: GCNConv(n, WIDTH, flow=flow),
    "GCNConv no loops": lambda n, _, flow: GCNConv(n, WIDTH, add_self_loops=False, flow=flow),
}
# Those that read edge features.
WITH_EDGES = {
    "GATConv",
    "GATConv no loops",
    "GATv2Conv",
    "GINEConv",
    "TransformerConv",
    "NNConv",
    "PNAConv",
    "ResGatedGraphConv",
    "GENConv",
    "CGConv",
}


class Net(nn.Module):
    """A linear layer, then `kinds` of layers with ReLU between them; edge features are read by
    those that can.
    """

    def __init__(
        self,
        n_node_features: int,
        n_edge_features: int,
        kinds: list[str],
        flow: str = "source_to_target",
    ) -> None:
        super().__init__()
        self.kinds = kinds
        self.first = nn.Linear(n_node_features, WIDTH)
        made = (LAYERS[kind](WIDTH, n_edge_features, flow) for kind in kinds)
        self.convs = nn.ModuleList(made)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.first(x)
        for kind, conv in zip(self.kinds, self.convs, strict=True):
            edges = (edge_attr,) if kind in WITH_EDGES else ()
            x = x.relu() + conv(x, edge_index, *edges)
        return x


class Plain(nn.Module):
    """Two layers that read no edge features."""

    def __init__(self, n_node_features: int, n_edge_features: int, width: int = 5) -> None:  # noqa: ARG002
        super().__init__()
        self.conv1 = SAGEConv(n_node_features, width)
        self.norm = nn.LayerNorm(width)
        self.conv2 = SAGEConv(-1, 2 * width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv2(self.norm(self.conv1(x, edge_index)).relu(), edge_index)


class Degrees(nn.Module):
    """A layer that is made with the degrees of the training events."""

    def __init__(
        self,
        n_node_features: int,
        n_edge_features: int,  # noqa: ARG002
        degree_histogram: Sequence[int] = (0, 1),
    ) -> None:
        super().__init__()
        degrees = torch.tensor(degree_histogram)
        self.conv = PNAConv(n_node_features, WIDTH, AGGREGATIONS, SCALERS, degrees)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv(x, edge_index)
