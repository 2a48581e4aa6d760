"""A network of PyG's layers as an edge model: the exchange around each layer, and a decoder.

Shapes: N nodes of which the first n_owned are owned, E edges, F and G node and edge features, D the
width of the network's embedding.
"""

import inspect

import torch
from torch import Tensor, nn

from bigtrk.errors import reason
from bigtrk.models.attention_gnn import AttentionGNNConfig, EdgeNetwork
from bigtrk.models.layers.neighbours import Neighbours
from bigtrk.models.protocol import (
    ContractError,
    Exchange,
    SectorInputs,
    check_edges,
    no_exchange,
)
from bigtrk.models.pyg.exchanging import LayerExchange
from bigtrk.models.pyg.forgetting import forgotten
from bigtrk.models.pyg.gcn import take_degrees
from bigtrk.models.pyg.refusals import refuse
from bigtrk.user_code import no_exit

_TRIED = 12  # nodes of the graph on which a network is tried


class PyGModel(nn.Module):
    """Classifies edges by the embeddings that a network gives their nodes, and by their features.

    Every parameter gets a gradient in each step, also from an empty sector.
    """

    def __init__(
        self,
        net: nn.Module,
        decoder: AttentionGNNConfig,
        n_node_features: int,
        n_edge_features: int,
    ) -> None:
        """Takes `net`, which maps (x [N, F], edge_index [2, E]) and, if its forward has an argument
        `edge_attr`, the edges' features [E, G], to embeddings [N, D]. The decoder is an edge
        network of the attention GNN.

        Raises:
            ContractError: `net` holds a layer that would not give in a sector what it gives in the
                whole graph, fails, or does not map to embeddings.
        """
        super().__init__()
        refuse(net)
        _keep_constants(net)
        self.net = net
        self._takes_edges = "edge_attr" in inspect.signature(net.forward).parameters
        self._normalised = take_degrees(net)
        width = self._embedding_width(n_node_features, n_edge_features)
        self.decoder = EdgeNetwork(decoder, width, n_edge_features)

    def forward(
        self,
        x: Tensor,
        edge_features: Tensor,
        edge_index: Tensor,
        n_owned: int,
        exchange: Exchange,
    ) -> Tensor:
        """Computes the logits [E], float32 at least.

        Raises:
            IndexError: an edge ends outside of the N nodes.
        """
        check_edges(edge_index, len(x))
        sector = with_edges(SectorInputs(x, edge_features, edge_index, n_owned))
        layers = LayerExchange(sector, len(x), exchange)
        graph, embedding = Neighbours(sector.edge_index, len(sector.x)), self.embed(sector, layers)
        logits: Tensor = self.decoder([graph], [embedding], [sector.edge_features])[0]
        return logits[: len(edge_features)]

    def embed(self, sector: SectorInputs, layers: LayerExchange) -> Tensor:
        """Computes the embedding [N, D] of a sector that has an edge, exchanging by `layers`.

        Raises:
            ContractError: the network gives no row for each node after a layer, or keeps a tensor.
        """
        edges = (sector.edge_features,) if self._takes_edges else ()
        with layers.around(self.net, self._normalised), forgotten(self.net):
            embedding: Tensor = self.net(sector.x, sector.edge_index, *edges)
        return embedding

    def _embedding_width(self, n_node_features: int, n_edge_features: int) -> int:
        """Runs the network on a small graph, which sets the sizes that layers take from their first
        input, and returns the width of its embedding.
        """
        nodes = torch.arange(_TRIED)
        edges = torch.stack([nodes, nodes.roll(1)])
        try:
            with torch.random.fork_rng(devices=[]), no_exit():
                x, features = (torch.randn(_TRIED, n) for n in (n_node_features, n_edge_features))
                sector = SectorInputs(x, features, edges, _TRIED)
                made = self.embed(sector, LayerExchange(sector, _TRIED, no_exchange))
        except ContractError:
            raise
        except Exception as error:
            said = f"fails on a graph of {_TRIED} nodes ({type(error).__name__}: {reason(error)})"
            raise self._bad(said) from error
        shape = list(made.shape) if isinstance(made, Tensor) else type(made).__name__
        if not isinstance(shape, list) or len(shape) != 2 or shape[0] != _TRIED or not shape[1]:
            said = f"gives {shape} for {_TRIED} nodes; return their embeddings [N, D]"
            raise self._bad(said)
        return shape[1]

    def _bad(self, how: str) -> ContractError:
        return ContractError(f"{type(self.net).__name__}: {how} (docs/adding/pyg.md)")


def with_edges(sector: SectorInputs) -> SectorInputs:
    """Gives a sector without edges two more nodes and edges between them, which nothing reads.

    Layers of PyG pass over their linear layers where there is no edge (GATConv), so that these
    would get no gradient, and ranks that shard them would wait for each other.
    """
    x, edge_features, edge_index, n_owned = sector
    if edge_index.shape[1]:
        return sector
    sign = x.new_tensor([[1.0], [-1.0]])
    there = len(x) + torch.tensor([[0, 1], [1, 0]], device=x.device)
    return SectorInputs(
        torch.cat([x, sign.expand(-1, x.shape[1])]),
        torch.cat([edge_features, sign.to(edge_features).expand(-1, edge_features.shape[1])]),
        there,
        n_owned,
    )


def _keep_constants(net: nn.Module) -> None:
    """Leaves the buffers of `net` out of its weights: what its constructor computes is the same
    whenever it is made anew, and no engine trains or gathers it.
    """
    for module in net.modules():
        module._non_persistent_buffers_set.update(module._buffers)
