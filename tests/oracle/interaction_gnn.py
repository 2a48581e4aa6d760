"""The Interaction GNN as acorn and PyTorch Geometric write it: the oracle, and what to beat.

Every concatenation is made, every activation is kept. Parameters have acorn's names, so its
weights load as they are; `load_acorn_weights` brings this model's into ours.

Shapes: N nodes, E edges, F and G node and edge features, H = hidden.
"""

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from bigtrk.models.settings import InteractionGNNConfig


def make_mlp(n_inputs: int, hidden: int, layers: int) -> nn.Sequential:
    """`layers` linear layers with LayerNorm and ReLU between them and ReLU at the end."""
    modules: list[nn.Module] = []
    for k in range(layers):
        modules += [nn.Linear(hidden if k else n_inputs, hidden)]
        modules += [nn.LayerNorm(hidden, elementwise_affine=False)] if k + 1 < layers else []
        modules += [nn.ReLU()]
    return nn.Sequential(*modules)


class ReferenceGNN(nn.Module):
    """Takes whole graphs only, without recomputation, exchange and the last, unread node update.

    With a `pt_head`, a last linear layer of its own for the log of each edge's pT, as ours.
    """

    def __init__(
        self,
        config: InteractionGNNConfig,
        n_node_features: int,
        n_edge_features: int,
        pt_head: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        hidden, k, layers = config.hidden, config.mlp_layers, config.layers
        parts, sums = (2 if config.concatenate else 1), (2 if config.in_out else 1)
        assert not config.shared_weights, "the reference has a network per layer"
        self.node_encoder = make_mlp(n_node_features, hidden, k)
        self.edge_encoder = make_mlp(n_edge_features, hidden, k)
        self.edge_network = nn.ModuleList(
            make_mlp(3 * parts * hidden, hidden, k) for _ in range(layers)
        )
        self.node_network = nn.ModuleList(
            make_mlp((sums + parts) * hidden, hidden, k) for _ in range(layers - 1)
        )
        self.edge_decoder = make_mlp(hidden, hidden, k)
        self.edge_output_transform = nn.Sequential(
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden, elementwise_affine=False),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        self.pt_output = nn.Linear(hidden, 1) if pt_head else None

    def forward(self, x: Tensor, edge_features: Tensor, edge_index: Tensor) -> Tensor:
        """X [N, F], edge_features [E, G], edge_index [2, E] -> logits [E], or logits and log pT
        [E, 2].
        """
        source, destination = edge_index
        x0 = x = self.node_encoder(x)
        e0 = e = self.edge_encoder(edge_features)
        for i, edge_network in enumerate(self.edge_network):
            if self.config.concatenate:
                x, e = torch.cat([x, x0], dim=1), torch.cat([e, e0], dim=1)
            e = edge_network(torch.cat([e, x[source], x[destination]], dim=1))
            if i + 1 < self.config.layers:
                sums = [scatter(e, ends, dim=0, dim_size=len(x)) for ends in (destination, source)]
                sums = sums if self.config.in_out else [sums[0] + sums[1]]
                x = self.node_network[i](torch.cat([*sums, x], dim=1))
        shared = self.edge_output_transform[:-1](self.edge_decoder(e))
        logits: Tensor = self.edge_output_transform[-1](shared)
        if self.pt_output is None:
            return logits.squeeze(-1)
        return torch.cat([logits, self.pt_output(shared)], dim=1)
