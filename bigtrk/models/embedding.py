"""An MLP that embeds hits, so that consecutive hits of a particle are near each other.

Shapes: N nodes, F node features, D dimensions of the embedding.
"""

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from bigtrk.models.layers.mlp import Regressor
from bigtrk.models.layers.workspace import Workspace
from bigtrk.models.options import Kind, Linears, ModelSettings, Width
from bigtrk.models.protocol import LayeredModel, SectorInputs


class EmbeddingConfig(ModelSettings):
    """An MLP of a hit's features: the first stage of the pipeline of Tripathy et al."""

    name: Literal["embedding"] = "embedding"
    """The embedding of hits, whose neighbours make a graph (`bigtrk build --embedding`)."""
    hidden: Width = 128
    """Width of its hidden layers."""
    mlp_layers: Linears = 3
    """Number of its hidden layers."""
    dimensions: Annotated[int, Field(ge=1, le=64)] = 8
    """Dimensions of the space that hits are embedded in."""
    recompute: Literal["none", "layer", "chunk"] = "none"
    """As of the Interaction GNN; hits are few beside edges."""
    precision: Literal["fp32"] = "fp32"
    """Places of hits in the embedding need all digits."""

    @property
    def kind(self) -> Kind:
        """Says what the model gives."""
        return "hit"

    @property
    def in_chunks(self) -> bool:
        """Says whether hits are computed in chunks that stay in cache."""
        return self.recompute != "layer"

    def build(
        self,
        n_node_features: int,
        n_edge_features: int,  # noqa: ARG002  # as of the other models
        pt_head: bool,  # noqa: ARG002
    ) -> "Embedding":
        return Embedding(self, n_node_features)


class Embedding(LayeredModel[None]):
    """Embeds each hit alone by its features: nothing is exchanged, and no edge is read."""

    def __init__(self, config: EmbeddingConfig, n_node_features: int) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList()
        self.network = Regressor(
            n_node_features, config.hidden, config.mlp_layers, config.dimensions
        )

    def encode(self, sectors: list[SectorInputs]) -> tuple[list[None], list[Tensor], list[Tensor]]:
        """Takes the features of nodes [N, F] and of edges as they are."""
        nodes = [sector.x for sector in sectors]
        return [None] * len(sectors), nodes, [sector.edge_features for sector in sectors]

    def decode(
        self,
        graphs: list[Any],  # noqa: ARG002  # as of the other models
        nodes: list[Tensor],
        edges: list[Tensor],  # noqa: ARG002
    ) -> list[Tensor]:
        """Computes the embedding [N, D] of each sector, float32 at least."""
        config = self.config
        work = Workspace(config.hidden, config.recompute, nodes[0].dtype, nodes[0].device)
        made: list[Tensor] = self.network(nodes, work)
        return made
