"""Functions of users' own add columns to nodes and edges, and broken rules are named."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_with_record
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import Sector, whole_sector
from bigtrk.graphs.features import (
    EDGE_FEATURES,
    ComputedFeatures,
    edge_table,
    load_functions,
    with_eta,
)
from bigtrk.user_code import allow_code
from tests.distributed.graphs import random_graph
from tests.training import user_functions

GRAPH = random_graph(3, 40, 240)
Function = Callable[..., Any]


def computed(sector: Sector, nodes: list[Function], edges: list[Function]) -> Sector:
    of_nodes, of_edges = (
        {f"own:{function.__name__}": function for function in some} for some in (nodes, edges)
    )
    return ComputedFeatures(of_nodes, of_edges).of(sector)


def column(sector: Sector, kind: str, name: str) -> Tensor:
    names = getattr(sector, f"{kind}_feature_names")
    made: Tensor = getattr(sector, f"{kind}_features")[:, names.index(f"own:{name}")]
    return made


def test_columns_are_those_of_a_loop_over_rows() -> None:
    sector = whole_sector(GRAPH)
    stored = sector.node_features.clone()
    made = computed(sector, [user_functions.distance], [user_functions.length])
    assert torch.equal(sector.node_features, stored), "functions get copies"
    r, z = stored[:, 0].tolist(), stored[:, 2].tolist()
    expected = [(a * a + b * b) ** 0.5 for a, b in zip(r, z, strict=True)]
    assert column(made, "node", "distance").tolist() == pytest.approx(expected, rel=1e-6)
    expected = [
        (dr * dr + dz * dz) ** 0.5 - 0.1 * abs(z[a] + z[b]) / 2
        for (dr, _, dz, *_), (a, b) in zip(
            sector.edge_features.tolist(), sector.edge_index.T.tolist(), strict=True
        )
    ]
    assert column(made, "edge", "length").tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_positions_give_the_features_of_edges_that_a_graph_lacks() -> None:
    event = simulate_event(20, seed=0, event_id=0)
    graph = build_with_record(event, WindowBuilder(builtin_windows()))[0]
    features = ComputedFeatures({}, {"own:sum": lambda edges, *_: edges["dz"]}, EDGE_FEATURES)
    without = replace(graph, edge_features=torch.empty(graph.n_edges, 0), edge_feature_names=())
    for bare in (without, replace(without, node_feature_names=("r", "phi", "z", "charge"))):
        made = features.of(whole_sector(bare))
        features.check_by_row(whole_sector(bare))
        assert made.edge_feature_names == (*EDGE_FEATURES, "own:sum")
        expected = graph.edge_features / graph.edge_features.abs().amax(0)
        found = made.edge_features[:, :-1] / graph.edge_features.abs().amax(0)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    lost = replace(without, node_feature_names=("x", "phi", "z", "eta"))
    assert ComputedFeatures({}, {}, EDGE_FEATURES).of(whole_sector(lost)).edge_features.numel() == 0


def test_edges_of_a_straight_track_have_its_z0_and_waves() -> None:
    r, z0 = np.array([30.0, 70.0, 110.0, 110.0]), -37.25
    z = z0 + 2.5 * r
    z[3] = 20.0  # on the radius of the hit before
    nodes = with_eta(r, np.array([-3.14, 3.14, 3.12, 3.12]), z)
    chosen = ["phislope", "z0", "sin_z0_4", "cos_z0_256", "cos_phislope_0.0016"]
    found = edge_table(nodes, np.array([[0, 1, 2], [1, 2, 3]]), chosen).double()
    torch.testing.assert_close(found[:, 1], torch.tensor([z0, z0, 0.0]).double())
    for name, column, length in (("sin_z0_4", 1, 4), ("cos_z0_256", 1, 256)):
        wave = getattr(torch, name[:3])(2 * math.pi * found[:, column] / length)
        torch.testing.assert_close(found[:, chosen.index(name)], wave, rtol=0, atol=1e-5)
    wave = torch.cos(2 * math.pi * found[:, 0] / 0.0016)
    torch.testing.assert_close(found[:, 4], wave, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("leaving", r"fails \(RuntimeError: it calls sys.exit\(0\), .*correct it"),
        ("absent", r"fails \(KeyError: .*no column 'charge'; there are r, phi, z, eta.*correct it"),
        ("too_short", r"gives shape \[39\] for 40 rows; return a tensor of shape \[40\], one"),
        ("whole_numbers", r"gives torch.int64; return float32"),
    ],
)
def test_what_is_no_column_is_told(name: str, words: str) -> None:
    with pytest.raises(
        InputError, match=f"{GRAPH.name}: nodes: feature own:{name} {words}"
    ) as told:
        computed(whole_sector(GRAPH), [getattr(user_functions, name)], [])
    assert "\n" not in str(told.value)
    highest = int(GRAPH.node_features[:, 2].argmax())
    words = f"{GRAPH.name}: node {highest} has own:not_a_number = nan; correct this function, or"
    with pytest.raises(InputError, match=words):
        computed(whole_sector(GRAPH), [user_functions.not_a_number], [])


@pytest.mark.parametrize("name", ["centred", "relative", "neighbours"])
def test_a_column_must_be_computed_row_by_row(name: str) -> None:
    function = {f"own:{name}": getattr(user_functions, name)}
    of_edges = name == "neighbours"
    features = ComputedFeatures({} if of_edges else function, function if of_edges else {})
    words = f"{'edges' if of_edges else 'nodes'}: feature own:{name} .*change when a graph is cut"
    with pytest.raises(InputError, match=words):
        features.check_by_row(whole_sector(GRAPH))


def test_columns_by_row_pass_also_without_rows_and_only_functions_are_features() -> None:
    features = ComputedFeatures(
        {"a:b": user_functions.distance, "a:c": user_functions.layer},
        {"a:d": user_functions.length},
    )
    for n_nodes in (0, 1, 40):
        features.check_by_row(whole_sector(random_graph(1, n_nodes, 6 * n_nodes)))
    allow_code([user_functions.HERE])
    name = f"{user_functions.HERE}:NOT_CALLABLE"
    with pytest.raises(InputError, match=rf"node_features={name}: is not callable \(float\); name"):
        load_functions(["r", name], "data.node_features")
    assert load_functions(["r", "cos_phi"], "data.node_features") == {}
