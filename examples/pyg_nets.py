"""Networks of PyG's layers, written for one whole graph on one device; bigtrk trains in sectors.

    bigtrk check-model pyg model.options.module=pyg_nets:GAT
    torchrun --nproc-per-node=2 bigtrk/train.py model.name=pyg model.options.module=pyg_nets:GAT \
        "data.train=sectors"

Each maps node features x [N, F] and edges [2, E] (GAT also edge features [E, G]) to embeddings of
nodes [N, width]. bigtrk adds the network that classifies edges by these.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, GCNConv, LayerNorm, SAGEConv


class GAT(nn.Module):
    """Attention over the edges of each hit, by their features."""

    def __init__(self, nodes: int, edges: int, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        widths = [nodes, *[width] * layers]
        self.layers = nn.ModuleList(
            GATv2Conv(before, after, edge_dim=edges) for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(LayerNorm(width, mode="node") for _ in self.layers)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x, edge_index, edge_attr)).relu()
        return x


class GCN(nn.Module):
    """Convolutions that divide by the degrees of both ends."""

    def __init__(self, nodes: int, edges: int, width: int = 32) -> None:  # noqa: ARG002
        super().__init__()
        self.first, self.second = GCNConv(nodes, width), GCNConv(width, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index).relu()


class SAGE(nn.Module):
    """Means over the neighbours of each hit."""

    def __init__(self, nodes: int, edges: int, width: int = 32) -> None:  # noqa: ARG002
        super().__init__()
        self.first, self.second = SAGEConv(nodes, width), SAGEConv(width, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index).relu()
