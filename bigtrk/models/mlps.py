"""MLPs without message passing. One classifies single edges, to compare message passing with; one
embeds hits so that consecutive hits of a particle lie near each other.

Shapes: N nodes, E edges, F and G node and edge features, D dimensions of the embedding.
"""

from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bigtrk.models.edges.states import Workspace
from bigtrk.models.interaction_gnn import Encoder
from bigtrk.models.options import Kind, Linears, ModelSettings, Precision, Width
from bigtrk.models.protocol import LayeredModel, SectorInputs, accumulable


class EdgeMLPConfig(ModelSettings):
    """An MLP over the features of an edge and of its two nodes, without message passing."""

    scores_alone: ClassVar[bool] = True
    has_chunks: ClassVar[bool] = True
    has_plain_form: ClassVar[bool] = True

    name: Literal["mlp"] = "mlp"
    """The MLP of single edges."""
    hidden: Width = 64
    """Width of its hidden layers."""
    mlp_layers: Linears = 3
    """Number of its hidden layers."""
    recompute: Literal["none", "layer", "chunk"] = "chunk"
    """Parts that the backward pass computes again, as for the Interaction GNN."""
    precision: Precision = "fp32"
    """`bf16` computes in bfloat16, as for the Interaction GNN."""

    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> "EdgeMLP":  # noqa: ARG002
        return EdgeMLP(self, n_node_features, n_edge_features)


class EdgeMLP(LayeredModel[None]):
    """Classifies each edge by its features and its two nodes' features, without an exchange."""

    def __init__(self, config: EdgeMLPConfig, n_node_features: int, n_edge_features: int) -> None:
        super().__init__()
        self.config = config
        n_inputs = n_edge_features + 2 * n_node_features
        self.layers = nn.ModuleList()
        self.network = Encoder(n_inputs, config.hidden, config.mlp_layers, 1)

    def encode(self, sectors: list[SectorInputs]) -> tuple[list[None], list[Tensor], list[Tensor]]:
        """Concatenates the features of each edge and of its two nodes: [E, G + 2 F]."""
        edges = [_features(sector) for sector in sectors]
        return [None] * len(sectors), [sector.x for sector in sectors], edges

    def decode(self, graphs: list[None], nodes: list[Tensor], edges: list[Tensor]) -> list[Tensor]:  # noqa: ARG002
        """Returns the logits [E] of each sector, float32 at least."""
        config = self.config
        dtype = torch.bfloat16 if config.precision == "bf16" else edges[0].dtype
        work = Workspace(config.hidden, config.recompute, dtype, edges[0].device)
        made: list[Tensor] = self.network(edges, work)
        return [accumulable(logits).squeeze(-1) for logits in made]


def _features(sector: SectorInputs) -> Tensor:
    source, destination = sector.edge_index
    ends = [sector.x.index_select(0, source), sector.x.index_select(0, destination)]
    return torch.cat([sector.edge_features, *ends], dim=1)


class EmbeddingConfig(ModelSettings):
    """An MLP over a hit's features: the first stage of the pipeline of Tripathy et al."""

    has_chunks: ClassVar[bool] = True
    has_plain_form: ClassVar[bool] = True

    name: Literal["embedding"] = "embedding"
    """The embedding of hits, whose neighbours make a graph (`bigtrk build --embedding`)."""
    hidden: Width = 128
    """Width of its hidden layers."""
    mlp_layers: Linears = 3
    """Number of its hidden layers."""
    dimensions: Annotated[int, Field(ge=1, le=64)] = 8
    """Dimensions of the space that hits are embedded in."""
    recompute: Literal["none", "layer", "chunk"] = "none"
    """Parts that the backward pass computes again, as for the Interaction GNN."""
    precision: Literal["fp32"] = "fp32"
    """Only float32, since positions in the embedding need all digits."""

    @property
    def kind(self) -> Kind:
        return "hit"

    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> "Embedding":  # noqa: ARG002
        return Embedding(self, n_node_features)


class Embedding(LayeredModel[None]):
    """Embeds each hit by its own features alone, without an exchange or edges."""

    def __init__(self, config: EmbeddingConfig, n_node_features: int) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList()
        self.network = Encoder(n_node_features, config.hidden, config.mlp_layers, config.dimensions)

    def encode(self, sectors: list[SectorInputs]) -> tuple[list[None], list[Tensor], list[Tensor]]:
        """Returns the features of nodes [N, F] and edges [E, G] unchanged."""
        nodes = [sector.x for sector in sectors]
        return [None] * len(sectors), nodes, [sector.edge_features for sector in sectors]

    def decode(self, graphs: list[Any], nodes: list[Tensor], edges: list[Tensor]) -> list[Tensor]:  # noqa: ARG002
        """Returns the embedding [N, D] of each sector, float32 at least."""
        config = self.config
        work = Workspace(config.hidden, config.recompute, nodes[0].dtype, nodes[0].device)
        made: list[Tensor] = self.network(nodes, work)
        return made
