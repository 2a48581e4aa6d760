"""A model that acorn made, with what it was given and gave."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import EDGE_FEATURES
from tests.formats.acorn.acorn_model import TWELVE, UNITS, checkpoint

Golden = dict[str, Tensor]
FILE = "golden/interaction_gnn/acorn_interaction_gnn2.safetensors"


def read_golden(testdata: Path) -> Golden:
    """Reads its weights ("param."), what it was given ("in.") and what it gave ("out.")."""
    with safe_open(testdata / FILE, framework="pt") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


def golden_checkpoint(testdata: Path, path: Path) -> Path:
    """Writes it as a checkpoint. It has no scales: its inputs were drawn as if scaled."""
    with safe_open(testdata / FILE, framework="pt") as opened:
        content: dict[str, Any] = json.loads(opened.metadata()["hparams"])
    weights = {
        name[6:]: tensor
        for name, tensor in read_golden(testdata).items()
        if name.startswith("param.")
    }
    return checkpoint(path, {**content, "node_scales": UNITS}, weights)


def golden_graph(golden: Golden) -> EventGraph:
    """Returns what it was given, in mm and rad."""
    of_edges = torch.tensor([1000.0, math.pi, 1000.0, 1.0, math.pi / 1000.0, math.pi])
    return EventGraph(
        name="golden",
        node_feature_names=tuple(TWELVE),
        edge_feature_names=EDGE_FEATURES,
        node_features=golden["in.node_features"] * torch.tensor(UNITS),
        edge_index=golden["in.edge_index"],
        edge_features=golden["in.edge_features"] * of_edges,
        y=golden["in.y"].bool(),
    )
