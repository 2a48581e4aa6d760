"""An MLP that classifies each edge alone: what message passing is compared with.

Shapes: N nodes, E edges, F and G node and edge features.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bigtrk.models.kernels.plain import accumulable
from bigtrk.models.layers.mlp import Regressor
from bigtrk.models.layers.workspace import Workspace
from bigtrk.models.options import Linears, ModelSettings, Precision, Width
from bigtrk.models.protocol import LayeredModel, SectorInputs


class EdgeMLPConfig(ModelSettings):
    """An MLP of an edge's features and of those of its two nodes, without message passing."""

    scores_alone: ClassVar[bool] = True

    name: Literal["mlp"] = "mlp"
    """The MLP of single edges."""
    hidden: Width = 64
    """Width of its hidden layers."""
    mlp_layers: Linears = 3
    """Number of its hidden layers."""
    recompute: Literal["none", "layer", "chunk"] = "chunk"
    """As of the Interaction GNN."""
    precision: Precision = "fp32"
    """As of the Interaction GNN."""

    @property
    def in_chunks(self) -> bool:
        """Says whether edges are computed in chunks that stay in cache."""
        return self.recompute != "layer"

    def build(
        self,
        n_node_features: int,
        n_edge_features: int,
        pt_head: bool,  # noqa: ARG002
    ) -> "EdgeMLP":
        return EdgeMLP(self, n_node_features, n_edge_features)


class EdgeMLP(LayeredModel[None]):
    """Classifies edges by their features and those of their nodes: nothing is exchanged."""

    def __init__(self, config: EdgeMLPConfig, n_node_features: int, n_edge_features: int) -> None:
        super().__init__()
        self.config = config
        n_inputs = n_edge_features + 2 * n_node_features
        self.layers = nn.ModuleList()
        self.network = Regressor(n_inputs, config.hidden, config.mlp_layers, 1)

    def encode(self, sectors: list[SectorInputs]) -> tuple[list[None], list[Tensor], list[Tensor]]:
        """Puts the features of an edge and of its two nodes side by side: [E, G + 2 F]."""
        edges = [_features(sector) for sector in sectors]
        return [None] * len(sectors), [sector.x for sector in sectors], edges

    def decode(
        self,
        graphs: list[None],  # noqa: ARG002  # as of the other models
        nodes: list[Tensor],  # noqa: ARG002
        edges: list[Tensor],
    ) -> list[Tensor]:
        """Computes the logits [E] of each sector, float32 at least."""
        config = self.config
        dtype = torch.bfloat16 if config.precision == "bf16" else edges[0].dtype
        work = Workspace(config.hidden, config.recompute, dtype, edges[0].device)
        made: list[Tensor] = self.network(edges, work)
        return [accumulable(logits).squeeze(-1) for logits in made]


def _features(sector: SectorInputs) -> Tensor:
    source, destination = sector.edge_index
    ends = [sector.x.index_select(0, source), sector.x.index_select(0, destination)]
    return torch.cat([sector.edge_features, *ends], dim=1)
