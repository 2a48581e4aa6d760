"""A pipeline computes the features of users' own, by the scales of the run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bigtrk import user_code
from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.models.protocol import no_exchange
from bigtrk.pipeline.models import load_embedding, load_scorer
from bigtrk.records.run import MeasuredScales
from bigtrk.training.model_files import build_model, describe, load_model
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration
from bigtrk.user_code import allow_code
from tests.training.user_functions import HERE

NODES, EDGES = ["r", f"{HERE}:distance"], ["dz", f"{HERE}:length"]
SCALES = MeasuredScales(nodes={NODES[1]: (500.0, 250.0)}, edges={EDGES[1]: (-20.0, 40.0)})


def write_run(folder: Path, **model: Any) -> None:
    allow_code([HERE])
    data = {"node_features": NODES, "edge_features": EDGES}
    made = Configuration.model_validate({"data": data, "model": {"hidden": 16, **model}})
    save_model(folder, build_model(made).state_dict(), describe(made, [], SCALES))


def features(graph: EventGraph) -> tuple[Tensor, Tensor]:
    """Returns the features of nodes [N, 2] and edges [E, 2], written out in float64."""
    nodes, edges = graph.node_features.double(), graph.edge_features.double()
    r, z = nodes[:, 0], nodes[:, 2]
    middle = z[graph.edge_index].sum(dim=0).abs() / 2
    length = torch.hypot(edges[:, 0], edges[:, 2]) - 0.1 * middle
    return (
        torch.stack([r / 300, (torch.hypot(r, z) - 500) / 250], dim=1),
        torch.stack([edges[:, 2] / 300, (length + 20) / 40], dim=1),
    )


def test_edges_are_scored_with_features_of_ones_own(graph: EventGraph, tmp_path: Path) -> None:
    write_run(tmp_path)
    x, edges = features(graph)
    model = load_model(tmp_path).model.double().eval()
    with torch.no_grad():
        logits = model(x, edges, graph.edge_index, graph.n_nodes, no_exchange)
    scores = load_scorer(tmp_path)(graph)
    torch.testing.assert_close(scores, logits.sigmoid(), rtol=0, atol=1e-5)


def test_hits_are_embedded_with_features_of_ones_own(
    event: Event, graph: EventGraph, tmp_path: Path
) -> None:
    write_run(tmp_path, name="embedding")
    x, edges = features(graph)
    model = load_model(tmp_path).model.double().eval()
    with torch.no_grad():
        expected = model(x, edges, graph.edge_index, graph.n_nodes, no_exchange)
    found = torch.from_numpy(load_embedding(tmp_path)(event))
    assert graph.hit_id is not None
    assert graph.hit_id.tolist() == event.hits["hit_id"].tolist()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


def test_a_run_from_elsewhere_is_not_enough_to_import_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path)
    monkeypatch.setattr(user_code, "_allowed", set())
    with pytest.raises(InputError, match=f"data.node_features={NODES[1]}: .*--code {HERE}"):
        load_scorer(tmp_path)
