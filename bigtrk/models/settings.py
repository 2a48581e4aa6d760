"""Settings of the models."""

from typing import Literal

from pydantic import Field

from bigtrk.config import Settings


class InteractionGNNConfig(Settings):
    """The Interaction GNN; its number of parameters and its memory follow from these.

    hidden: width of every layer. layers: message-passing layers. mlp_layers: linear layers of each
    MLP. shared_weights: one set of weights for all layers. concatenate: each layer also reads the
    encoded features. in_out: a node sums incoming and outgoing edges apart. recompute: with
    "layer", the backward pass computes each layer anew instead of keeping its activations; with
    "chunk" it and the forward pass go through a layer's edges in chunks that stay in cache.
    precision: "bf16" computes in bfloat16 where that is safe; weights and sums stay float32.
    """

    hidden: int = Field(64, ge=2)
    layers: int = Field(8, ge=1)
    mlp_layers: int = Field(2, ge=1)
    shared_weights: bool = False
    concatenate: bool = True
    in_out: bool = True
    recompute: Literal["none", "layer", "chunk"] = "layer"
    precision: Literal["fp32", "bf16"] = "fp32"
