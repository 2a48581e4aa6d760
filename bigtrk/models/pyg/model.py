"""A network of PyG's layers as an edge model: the exchange around each layer, and a decoder.

Shapes: N nodes of which the first n_owned are owned, E edges, F and G node and edge features, D the
width of the network's embedding.
"""

import inspect

import torch
from torch import Tensor, nn

from bigtrk.models.attention_gnn import AttentionGNNConfig, EdgeNetwork
from bigtrk.models.layers.neighbours import Neighbours
from bigtrk.models.protocol import ContractError, Exchange, SectorInputs, check_edges
from bigtrk.models.pyg.exchanging import LayerExchange
from bigtrk.models.pyg.forgetting import forgotten
from bigtrk.models.pyg.gcn import take_degrees
from bigtrk.models.pyg.refusals import refuse
from bigtrk.models.pyg.trial import embedding_width, try_out


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
                whole graph, or does not map to embeddings.
        """
        super().__init__()
        refuse(net)
        _keep_constants(net)
        self.net = net
        self._takes_edges = "edge_attr" in inspect.signature(net.forward).parameters
        self._normalised = take_degrees(net)
        width = embedding_width(self, n_node_features, n_edge_features)
        self.decoder = EdgeNetwork(decoder, width, n_edge_features)
        try:
            try_out(self, n_node_features, n_edge_features)
        except ContractError as error:
            error.model = self  # for a proof, which finds out more than the trial
            raise

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
