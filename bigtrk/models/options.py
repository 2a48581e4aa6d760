"""The common settings of every model."""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import nn

from bigtrk.config import Settings

Precision = Literal["fp32", "bf16"]
Kind = Literal["edge", "hit"]  # what a model gives (protocol.py)
# These are far above any track finder's: configurations come with files from anywhere, and a model
# is built and counted layer by layer before its weights are compared.
Width = Annotated[int, Field(ge=2, le=65_536)]
Layers = Annotated[int, Field(ge=1, le=256)]
Linears = Annotated[int, Field(ge=1, le=16)]  # of one MLP


class ModelSettings(Settings):
    """The settings of one model, which build it.

    Beside its own it has `name` (a Literal, by which a configuration chooses it) and, for the cost
    model, `hidden` (the width of its nodes and edges; None where only the model knows it),
    `recompute` and `precision`.
    """

    has_pt_head: ClassVar[bool] = False  # whether it can predict the pT of an edge's particle
    scores_alone: ClassVar[bool] = False  # whether an edge's score needs no edge but this one

    @property
    def kind(self) -> Kind:
        """Says what the model gives."""
        return "edge"

    @property
    def in_chunks(self) -> bool:
        """Says whether edges are computed in chunks that stay in cache."""
        return False

    @abstractmethod
    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> nn.Module:
        """Makes the model for so many features, as models/protocol.py says, with fresh weights.

        pt_head: with a head for log pT; never asked for where `has_pt_head` is false.
        """
