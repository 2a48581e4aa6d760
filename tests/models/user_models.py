"""Models as users write them, of both forms and both kinds; `tests.models.user_models:Simple`."""

from typing import Any

import torch
from torch import Tensor, nn

from bigtrk.config import Settings
from bigtrk.models.protocol import Exchange, LayeredModel, SectorInputs


class Simple(nn.Module):
    """The simple form: sums over edges, each followed by an exchange, then a product.

    It has what users' models have beside layers: a parameter of its own, a constant, a dictionary.
    """

    def __init__(
        self, n_node_features: int, n_edge_features: int, hidden: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        self.count = layers
        inputs = {"nodes": n_node_features, "edges": n_edge_features}
        self.first = nn.ModuleDict({name: nn.Linear(n, hidden) for name, n in inputs.items()})
        self.scale = nn.Parameter(torch.ones(hidden))
        self.register_buffer("damping", torch.tensor(0.5), persistent=False)
        self.last = nn.Linear(hidden, 1)

    def forward(
        self, x: Tensor, e: Tensor, edge_index: Tensor, n_owned: int, exchange: Exchange
    ) -> Tensor:
        source, destination = edge_index
        x, e = self.first["nodes"](x) * self.damping, self.first["edges"](e) * self.scale
        for _ in range(self.count):
            sums = x.index_add(0, destination, (x[source] * e).tanh())
            x = exchange(sums[:n_owned])
        made: Tensor = self.last(x[source] * x[destination])[:, 0]
        return made


class Layer(nn.Module):
    """Adds to each node what its incoming edges make of the nodes at their other ends."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(
        self, sectors: list[SectorInputs], nodes: list[Tensor], edges: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        made = []
        for sector, x, e in zip(sectors, nodes, edges, strict=True):
            source, destination = sector.edge_index
            sums = torch.zeros_like(x).index_add(0, destination, (x[source] * e).tanh())
            made.append((x + sums)[: sector.n_owned])
        return [self.linear(x) for x in made], edges


class Layered(LayeredModel[SectorInputs]):
    """The layered form, with options that a pydantic class checks."""

    class Options(Settings):
        hidden: int = 4
        layers: int = 2

    def __init__(
        self, n_node_features: int, n_edge_features: int, hidden: int, layers: int
    ) -> None:
        super().__init__()
        self.nodes = nn.Linear(n_node_features, hidden)
        self.edges = nn.Linear(n_edge_features, hidden)
        self.layers = nn.ModuleList(Layer(hidden) for _ in range(layers))
        self.last = nn.Linear(hidden, 1)

    def encode(
        self, sectors: list[SectorInputs]
    ) -> tuple[list[SectorInputs], list[Tensor], list[Tensor]]:
        nodes = [self.nodes(sector.x) for sector in sectors]
        return sectors, nodes, [self.edges(sector.edge_features) for sector in sectors]

    def decode(
        self, graphs: list[SectorInputs], nodes: list[Tensor], edges: list[Tensor]
    ) -> list[Tensor]:
        parts = zip(graphs, nodes, edges, strict=True)
        rows = [e * x[s.edge_index[0]] * x[s.edge_index[1]] for s, x, e in parts]
        return [self.last(row)[:, 0] for row in rows]


class Embedding(nn.Module):
    """Embeds each hit alone."""

    def __init__(self, n_node_features: int, n_edge_features: int, dimensions: int = 3) -> None:
        super().__init__()
        del n_edge_features  # it reads no edges
        self.linear = nn.Linear(n_node_features, dimensions)

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        made: Tensor = self.linear(x)
        return made
