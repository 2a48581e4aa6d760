"""Settings of the models."""

from typing import Literal

from pydantic import Field

from bigtrk.config import Settings
from bigtrk.models.workspace import Recompute


class InteractionGNNConfig(Settings):
    """The Interaction GNN; its number of parameters and its memory follow from these.

    hidden: width of every layer. layers: message-passing layers. mlp_layers: linear layers of each
    MLP. shared_weights: one set of weights for all layers. concatenate: each layer also reads the
    encoded features. in_out: a node sums incoming and outgoing edges apart. recompute: what the
    backward pass computes anew from the edges between layers: "none" of the matrix products,
    "layer" a layer at once, "chunk" a layer in chunks that stay in cache; "offload" is "chunk" with
    what is kept between layers in the memory of the host.
    precision: "bf16" computes in bfloat16 where that is safe; weights and sums stay float32.
    """

    hidden: int = Field(64, ge=2)
    layers: int = Field(8, ge=1)
    mlp_layers: int = Field(2, ge=1)
    shared_weights: bool = False
    concatenate: bool = True
    in_out: bool = True
    recompute: Recompute = "chunk"
    precision: Literal["fp32", "bf16"] = "fp32"
