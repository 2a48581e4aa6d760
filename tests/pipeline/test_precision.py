"""Edges are scored in the precision that was asked for, by every model of edges."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import SCALES, normalised
from bigtrk.models.protocol import no_exchange
from bigtrk.pipeline.models import load_scorer
from bigtrk.pipeline.options import Precision
from bigtrk.training.model_files import build_model, describe, load_model
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration

# The largest error of a score, and the least that shows that no finer numbers were used.
ERRORS = {Precision.FLOAT64: (1e-13, 0), Precision.FP32: (1e-5, 1e-9), Precision.BF16: (0.1, 1e-4)}


def in_float64(run: Path, graph: EventGraph) -> Tensor:
    """Scores the edges in their own order by the stored model, turned into float64 here."""
    stored = load_model(run)
    data = stored.configuration.data
    nodes = normalised(graph.node_features, graph.node_feature_names, SCALES, data.node_features)
    edges = normalised(graph.edge_features, graph.edge_feature_names, SCALES, data.edge_features)
    model = stored.model.double().eval()
    with torch.no_grad():
        logits: Tensor = model(
            nodes.double(), edges.double(), graph.edge_index, graph.n_nodes, no_exchange
        )
    return torch.sigmoid(logits)


@pytest.mark.parametrize("model", ["interaction", "mlp", "attention"])
def test_scores_have_the_precision_asked_for(graph: EventGraph, tmp_path: Path, model: str) -> None:
    configuration = Configuration.model_validate({"model": {"name": model, "hidden": 16}})
    save_model(tmp_path, build_model(configuration).state_dict(), describe(configuration, []))
    exact = in_float64(tmp_path, graph)
    for precision, (most, least) in ERRORS.items():
        scores = load_scorer(tmp_path, precision=precision)(graph)
        error = float((scores - exact).abs().max())
        assert least <= error <= most, precision
    as_trained = load_scorer(tmp_path)(graph)
    assert torch.equal(as_trained, load_scorer(tmp_path, precision=Precision.FP32)(graph))
