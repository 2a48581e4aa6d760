"""A graph with everything that trips a model, sectors of it, and gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bigtrk.models.protocol import SectorInputs

F, G = 3, 2
# x [N, F], edge_features [E, G], edge_index [2, E].
Graph = tuple[Tensor, Tensor, Tensor]


def make_graph(n_nodes: int = 12, n_edges: int = 40) -> Graph:
    """Random directed edges among all nodes but the last, with a self loop and a repeated edge."""
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(n_nodes - 1, (2, n_edges), generator=generator)
    edge_index[:, 0] = 4
    edge_index[:, 2] = edge_index[:, 1]
    x = torch.randn(n_nodes, F, generator=generator, dtype=torch.float64)
    return x, torch.randn(n_edges, G, generator=generator, dtype=torch.float64), edge_index


def gradients(model: nn.Module, logits: Tensor) -> dict[str, Tensor]:
    """Gradients of a loss in which every edge counts differently; logits [E] or [E, 2]."""
    model.zero_grad()
    counts = torch.arange(1, len(logits) + 1, device=logits.device)
    (logits.movedim(0, -1) * counts).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


class Recorder:
    """An exchange that notes what it is given."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def __call__(self, owned: Tensor) -> Tensor:
        self.seen.append(owned.detach())
        return owned


@dataclass(frozen=True)
class PartOfGraph:
    """A sector's inputs, and its owned nodes, halo nodes and edges by their rows in the graph."""

    inputs: Graph
    owned: Tensor
    halo: Tensor
    edges: Tensor


def sector_of(graph: Graph) -> PartOfGraph:
    """Two thirds of the nodes, all edges that touch them, and the halo at their other ends."""
    x, edge_features, edge_index = graph
    owns = torch.arange(len(x)) % 3 != 1
    touches = owns[edge_index].any(0)
    is_halo = torch.zeros_like(owns)
    is_halo[edge_index[:, touches].flatten()] = True
    owned, halo = owns.nonzero()[:, 0], (is_halo & ~owns).nonzero()[:, 0]
    assert len(halo) > 0
    node_id = torch.cat([owned, halo])
    row = torch.full((len(x),), -1)
    row[node_id] = torch.arange(len(node_id))
    inputs = x[node_id], edge_features[touches], row[edge_index[:, touches]]
    return PartOfGraph(inputs, owned, halo, touches)


def halo_from(
    whole: Recorder, sector: PartOfGraph, tolerance: float = 1e-12
) -> Callable[[Tensor], Tensor]:
    """The exchange of a sector whose halo rows come from a run over the whole graph, near to whose
    its own must be.
    """
    states = iter(whole.seen)

    def exchange(rows: Tensor) -> Tensor:
        state = next(states).to(rows)
        owned = state[sector.owned]
        torch.testing.assert_close(rows.detach(), owned, rtol=tolerance, atol=tolerance / 10)
        return torch.cat([rows, state[sector.halo]])

    return exchange


class Cut:
    """A graph in sectors of one process, and the exchange between them.

    Node i is owned by part i % parts; one more part owns none. owned, halo, edges: the nodes and
    the edges of each part by their rows in the graph. owns: which of its edges it counts, those
    whose destination it owns.
    """

    def __init__(self, graph: Graph, parts: int = 2) -> None:
        x, edge_features, edge_index = graph
        owner = torch.arange(len(x)) % parts
        self.owned, self.halo, self.edges, self.owns = [], [], [], []
        self.sectors = []
        for part in range(parts + 1):
            mine = owner == part
            touches = mine[edge_index].any(0)
            ends = edge_index[:, touches].unique()
            owned, halo = mine.nonzero()[:, 0], ends[~mine[ends]]
            nodes = torch.cat([owned, halo])
            row = torch.zeros(len(x), dtype=torch.int64)
            row[nodes] = torch.arange(len(nodes))
            inputs = x[nodes], edge_features[touches], row[edge_index[:, touches]]
            self.sectors.append(SectorInputs(*inputs, n_owned=len(owned)))
            self.owned.append(owned)
            self.halo.append(halo)
            self.edges.append(touches.nonzero()[:, 0])
            self.owns.append(mine[edge_index[1, touches]])

    def exchange(self, owned: list[Tensor]) -> list[Tensor]:
        """Rows of all nodes [N, H] from the parts' owned ones, and of these each part's."""
        everywhere = torch.cat(owned)[torch.cat(self.owned).argsort()]
        pairs = zip(owned, self.halo, strict=True)
        return [torch.cat([rows, everywhere[halo]]) for rows, halo in pairs]

    def merged(self, made: list[Tensor]) -> Tensor:
        """The results of the edges of the whole graph, each from the part that owns it."""
        parts = zip(made, self.edges, self.owns, strict=True)
        edges, values = zip(*((e[owns], m[owns]) for m, e, owns in parts), strict=True)
        return torch.cat(values)[torch.cat(edges).argsort()]
