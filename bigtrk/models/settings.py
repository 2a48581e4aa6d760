"""Settings of the models; `name` chooses one."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bigtrk.config import Settings
from bigtrk.models.layers.workspace import Recompute

Precision = Literal["fp32", "bf16"]
# Far above any track finder's: configurations come with files from anywhere, and a model is built
# and counted layer by layer before its weights are compared.
Width = Annotated[int, Field(ge=2, le=65_536)]
Layers = Annotated[int, Field(ge=1, le=256)]
Linears = Annotated[int, Field(ge=1, le=16)]  # of one MLP


class InteractionGNNConfig(Settings):
    """The Interaction GNN; its number of parameters and its memory follow from these."""

    name: Literal["interaction"] = "interaction"
    """The Interaction GNN."""
    hidden: Width = 64
    """Width of every layer."""
    layers: Layers = 8
    """Message-passing layers."""
    mlp_layers: Linears = 2
    """Linear layers of each MLP."""
    shared_weights: bool = False
    """Use one set of weights for all layers."""
    concatenate: bool = True
    """Each layer also reads the encoded features."""
    in_out: bool = True
    """A node sums incoming and outgoing edges apart."""
    recompute: Recompute = "chunk"
    """What the backward pass computes anew from the edges between layers: `none` of the matrix
    products, `layer` a layer at once, `chunk` a layer in chunks that stay in cache; `offload` is
    `chunk` with what is kept between layers in the memory of the host."""
    precision: Precision = "fp32"
    """`bf16` computes in bfloat16 where that is safe; weights and sums stay float32."""

    @property
    def exchanges(self) -> int:
        """Halo exchanges of a forward pass, of rows as wide as `hidden`."""
        return self.layers - 1

    @property
    def in_chunks(self) -> bool:
        """Whether edges are computed in chunks that stay in cache."""
        return self.recompute != "layer"


class AttentionGNNConfig(Settings):
    """The attention network of HEP.TrkX; that of 2018 has mlp_layers 2 without layer_norm, that of
    2019 has 4 with it, and neither has edge_features.
    """

    name: Literal["attention"] = "attention"
    """The attention network of HEP.TrkX."""
    hidden: Width = 64
    """Width of a node's state."""
    layers: Layers = 8
    """Times that the edge network weighs the edges and the node network reads their weighted sums;
    both have one set of weights."""
    mlp_layers: Linears = 2
    """Linear layers of each network."""
    layer_norm: bool = True
    """LayerNorm before each activation."""
    edge_features: bool = True
    """The edge network reads them beside the states of the nodes, which are all that HEP.TrkX's
    reads."""
    recompute: Literal["none", "layer"] = "layer"
    """What the backward pass computes anew: `none` of the networks, or in each `layer` both, from
    the nodes' states and one number per edge."""
    precision: Precision = "fp32"
    """`bf16` computes the edge network in bfloat16; weights, nodes and sums stay float32."""

    @property
    def exchanges(self) -> int:
        """Halo exchanges of a forward pass, of rows as wide as `hidden`."""
        return self.layers

    @property
    def in_chunks(self) -> bool:
        """Whether edges are computed in chunks that stay in cache."""
        return False


class EdgeMLPConfig(Settings):
    """An MLP of an edge's features and of those of its two nodes, without message passing."""

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
    def exchanges(self) -> int:
        """Halo exchanges of a forward pass."""
        return 0

    @property
    def in_chunks(self) -> bool:
        """Whether edges are computed in chunks that stay in cache."""
        return self.recompute != "layer"


_CONFIGS = (InteractionGNNConfig, AttentionGNNConfig, EdgeMLPConfig)
_OPTIONS = {config.model_fields["name"].default: config.model_fields for config in _CONFIGS}


def _of_one_model(content: Any) -> Any:
    """The Interaction GNN's where no model is named, as in configurations from before the others.

    Raises:
        ValueError: an option is of other models only.
    """
    if not isinstance(content, dict):
        return content
    content = {"name": "interaction", **content}
    for key in content:
        models = [name for name, options in _OPTIONS.items() if key in options]
        # A name that is no text cannot be looked up; it is refused with the other values.
        known = isinstance(content["name"], str) and content["name"] in _OPTIONS
        if models and known and content["name"] not in models:
            raise ValueError(
                f"model.{key} is an option of {' and '.join(models)}; remove it for "
                f"{content['name']}"
            )
    return content


ModelConfig = Annotated[
    InteractionGNNConfig | AttentionGNNConfig | EdgeMLPConfig,
    Field(discriminator="name"),
    BeforeValidator(_of_one_model),
]
