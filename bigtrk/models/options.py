"""The common settings of every model."""

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import nn

from bigtrk.config import Settings

Precision = Literal["fp32", "bf16"]
Kind = Literal["edge", "hit"]  # what a model gives (protocol.py)
# The limits are far above any track finder. A configuration may come with a file from anywhere, and
# its model is built and counted layer by layer before its weights are compared.
Width = Annotated[int, Field(ge=2, le=65_536)]
Layers = Annotated[int, Field(ge=1, le=256)]
Linears = Annotated[int, Field(ge=1, le=16)]  # linear layers of one MLP


class ModelSettings(Settings):
    """The settings of one model; `build` makes the model. Each subclass has its `name` (a Literal)
    and, for the cost model, `hidden` (the width of nodes and edges; None if only the model knows
    it), `recompute` and `precision`.
    """

    has_pt_head: ClassVar[bool] = False  # whether it can predict the pT of an edge's particle
    is_users: ClassVar[bool] = False  # whether its code is the user's, not tested by bigtrk
    has_chunks: ClassVar[bool] = False  # whether its MLPs are computed chunk by chunk
    keeps_edges: ClassVar[bool] = False  # whether a store may hold edges between its layers
    has_plain_form: ClassVar[bool] = False  # whether it is exported as standard operators
    scores_alone: ClassVar[bool] = False  # whether an edge's score depends on no other edge

    init_from: Path | None = None
    """Weights to start from: a run, trained here or imported, or a `.safetensors` file. The
    optimizer starts fresh; the model and its features must be the same. By default
    `training.seed` draws the weights."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def kind(self) -> Kind:
        return "edge"

    @property
    def in_chunks(self) -> bool:
        """Whether edges (or hits) are computed in chunks that stay in cache."""
        return self.has_chunks and getattr(self, "recompute", "layer") != "layer"

    @property
    def spills(self) -> bool:
        """Whether states of edges may be kept in files (`training.spill`)."""
        return self.keeps_edges and getattr(self, "recompute", "layer") == "chunk"

    @property
    def offloads(self) -> bool:
        """Whether states of an accelerator's edges are kept in its host's memory."""
        return self.keeps_edges and getattr(self, "recompute", "layer") == "offload"

    @property
    def overlaps(self) -> bool:
        """Whether a layer computes edges that read no halo rows while these rows travel."""
        return self.keeps_edges and self.in_chunks

    @abstractmethod
    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> nn.Module:
        """Makes the model for these numbers of features; pt_head: it also predicts log pT."""
