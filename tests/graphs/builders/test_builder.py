"""A built graph and its record against truth in pandas."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bigtrk.events.event import Event
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import true_edges
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph, build_with_record
from bigtrk.graphs.builders.windows import build_doublets, builtin_windows
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import CELL_FEATURES, EDGE_FEATURES, NODE_FEATURES
from tests.present import present

WINDOWS = builtin_windows()


@pytest.fixture(scope="module")
def event() -> Event:
    return simulate_event(300, seed=3)


@pytest.fixture(scope="module")
def graph(event: Event) -> EventGraph:
    return build_graph(event, WindowBuilder(WINDOWS))


def test_every_hit_is_a_node(event: Event, graph: EventGraph) -> None:
    assert present(graph.hit_id).tolist() == event.hits["hit_id"].tolist()
    assert graph.node_feature_names == NODE_FEATURES + CELL_FEATURES
    assert graph.node_features.dtype == graph.edge_features.dtype == torch.float32
    r, phi, z = (graph.node_features[:, i].numpy() for i in range(3))
    x, y = event.hits["x"].astype(np.float64), event.hits["y"].astype(np.float64)
    np.testing.assert_allclose(r * np.exp(1j * phi), x + 1j * y, atol=1e-3)
    np.testing.assert_allclose(z, event.hits["z"].astype(np.float64), rtol=1e-6)


def test_edges_are_the_doublets_sorted(event: Event, graph: EventGraph) -> None:
    edges = graph.edge_index.T.tolist()
    assert edges == sorted(build_doublets(event.hits, WINDOWS).T.tolist(), key=lambda e: e[::-1])
    true = set(map(tuple, true_edges(event).T.tolist()))
    assert present(graph.y).tolist() == [tuple(edge) in true for edge in edges]
    r = graph.node_features[:, 0]
    source, destination = graph.edge_index
    dr = graph.edge_features[:, EDGE_FEATURES.index("dr")]
    torch.testing.assert_close(dr, r[destination] - r[source], atol=1e-3, rtol=0)
    assert (dr > 0).all(), "inner to outer"


def test_record_against_pandas(event: Event, graph: EventGraph) -> None:
    hits = pd.DataFrame({"hit_id": event.hits["hit_id"]}).merge(pd.DataFrame(event.truth))
    hits["n"] = hits.groupby("particle_id")["hit_id"].transform("size")
    hits = hits.merge(pd.DataFrame(event.particles), on="particle_id", how="left")
    target = ((np.hypot(hits.px, hits.py) > 1) & (hits.n >= 3)).to_numpy()
    true, y = true_edges(event), present(graph.y).numpy()
    found_target = y & target[graph.edge_index[0].numpy()]
    _, record = build_with_record(event, WindowBuilder(WINDOWS))
    assert record == {
        "nodes": len(hits),
        "edges": graph.n_edges,
        "true_edges": true.shape[1],
        "target_edges": target[true[0]].sum(),
        "edge_efficiency": pytest.approx(y.sum() / true.shape[1]),
        "target_efficiency": pytest.approx(found_target.sum() / target[true[0]].sum()),
        "purity": pytest.approx(y.sum() / graph.n_edges),
        "target_purity": pytest.approx(found_target.sum() / graph.n_edges),
        "windows": WINDOWS.digest(),
    }


def test_particles_and_weights(event: Event, graph: EventGraph) -> None:
    particle_id, weight = present(graph.particle_id), present(graph.hit_weight)
    is_known = present(graph.particles).rows_of(particle_id) >= 0
    assert torch.equal(is_known, particle_id != 0)
    assert weight.tolist() == present(event.truth)["weight"].tolist()
    assert weight.dtype == torch.float64


def test_without_truth_or_cells(event: Event, graph: EventGraph) -> None:
    bare = replace(event, cells=None, particles=None, truth=None)
    unlabelled = build_graph(bare, WindowBuilder(WINDOWS))
    assert torch.equal(unlabelled.edge_index, graph.edge_index)
    assert unlabelled.node_feature_names == NODE_FEATURES
    assert unlabelled.y is unlabelled.particle_id is unlabelled.hit_weight is None
    assert unlabelled.particles is None
    _, record = build_with_record(bare, WindowBuilder(WINDOWS))
    assert record["edges"] == graph.n_edges
    assert record["purity"] is record["target_efficiency"] is None


def test_particles_of_unknown_momentum_stay(testdata: Path) -> None:
    event = read_event(testdata / "data" / "trackml_subevent")
    table = present(event.particles)
    kept = {name: column[1:] for name, column in table.items()}
    graph = build_graph(replace(event, particles=kept), WindowBuilder(WINDOWS))
    found = present(graph.particles)
    missing = found.rows_of(torch.tensor([int(table["particle_id"][0])]))
    assert missing.item() >= 0
    assert found.pt.dtype == torch.float32
    assert found.pt[missing].isnan().all()


def test_an_event_without_hits_is_an_empty_graph(event: Event) -> None:
    empty = Event("event1", {name: column[:0] for name, column in event.hits.items()})
    graph, record = build_with_record(empty, WindowBuilder(WINDOWS))
    assert (graph.n_nodes, record["edges"], graph.edge_features.shape) == (0, 0, (0, 6))
