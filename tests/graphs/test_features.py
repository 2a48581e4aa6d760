"""Features against scalar arithmetic, pandas and acorn's definition in scaled units."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.events.reader import read_event
from bigtrk.graphs import features as features_module
from bigtrk.graphs.features import (
    EDGE_FEATURES,
    NODE_FEATURES,
    PHISLOPE_LIMIT,
    SCALES,
    Floats,
    as_tensor,
    check_finite,
    cluster_columns,
    cylindrical,
    edge_columns,
    edge_table,
    normalised,
    with_eta,
)


def some_nodes(n: int, seed: int = 0) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    r = np.round(rng.uniform(30, 1000, n))  # repeated radii: some edges have dr = 0
    return with_eta(r, rng.uniform(-np.pi, np.pi, n), rng.uniform(-3000, 3000, n))


def test_node_features_of_a_point() -> None:
    columns = cylindrical(np.array([-3.0]), np.array([-4.0]), np.array([12.0]))
    theta = math.acos(12 / 13)
    assert tuple(columns) == NODE_FEATURES
    assert columns["r"][0] == pytest.approx(5)
    assert columns["phi"][0] == pytest.approx(-math.pi + math.atan(4 / 3))
    assert columns["eta"][0] == pytest.approx(-math.log(math.tan(theta / 2)))


def test_normalised_edge_features_are_acorns() -> None:
    """They are what acorn computes from r / 1000, phi / pi, z / 1000 and eta, in float32."""
    nodes = some_nodes(60)
    edges = np.stack(np.nonzero(~np.eye(60, dtype=bool)))
    acorns = (1000.0, math.pi, 1000.0, 1.0, math.pi / 1000.0, math.pi)
    scales = dict(zip(EDGE_FEATURES, acorns, strict=True))
    raw = as_tensor(edge_columns(nodes, edges))
    features, copy = normalised(raw, EDGE_FEATURES, scales, EDGE_FEATURES), raw.clone()
    assert torch.equal(raw, as_tensor(edge_columns(nodes, edges))), "they stay as they were"
    assert normalised(copy, EDGE_FEATURES, scales, EDGE_FEATURES, in_place=True) is copy
    assert torch.equal(copy, features)
    r, phi, z, eta = nodes["r"] / 1000, nodes["phi"] / np.pi, nodes["z"] / 1000, nodes["eta"]
    clamped = 0
    for row, (a, b) in zip(features.tolist(), edges.T.tolist(), strict=True):
        dr, dphi = r[b] - r[a], (phi[b] - phi[a] + 1) % 2 - 1
        slope = 0.0 if dr == 0 else min(max(dphi / dr, -100.0), 100.0)
        clamped += abs(slope) == 100
        expected = [dr, dphi, z[b] - z[a], eta[b] - eta[a], slope, (r[a] + r[b]) / 2 * slope]
        assert row == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert clamped, "the clamp was reached"
    assert (features[:, 0] == 0).any(), "dr = 0 was reached"


def test_edges_some_at_a_time_are_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features_module, "AT_A_TIME", 7)
    nodes, rng = some_nodes(9), np.random.default_rng(1)
    for n_edges in (0, 1, 7, 14, 20):
        edges = rng.integers(0, 9, (2, n_edges))
        assert torch.equal(edge_table(nodes, edges), as_tensor(edge_columns(nodes, edges)))


def test_a_slope_beyond_all_numbers_is_clamped() -> None:
    """Hits that are 1e-310 mm apart in r."""
    nodes = with_eta(np.array([0.0, 1e-310]), np.array([0.0, 1.0]), np.array([5.0, 5.0]))
    columns = edge_columns(nodes, np.array([[0], [1]]))
    assert columns["phislope"].tolist() == [PHISLOPE_LIMIT]


def test_cluster_features_against_pandas(testdata: Path) -> None:
    event = read_event(testdata / "data" / "trackml_subevent")
    assert event.cells is not None
    hit_id = event.hits["hit_id"].astype(np.int64)[::-1].copy()
    columns = cluster_columns(hit_id, event.cells)
    cells = pd.DataFrame(event.cells).groupby("hit_id")
    spans = cells[["ch0", "ch1"]].max() - cells[["ch0", "ch1"]].min() + 1
    expected = pd.DataFrame(
        {
            "cluster_count": cells.size(),
            "cluster_value": cells["value"].sum(),
            "cluster_u": spans["ch0"],
            "cluster_v": spans["ch1"],
        }
    ).reindex(hit_id, fill_value=0)
    for name, column in columns.items():
        np.testing.assert_allclose(column, expected[name].to_numpy(), err_msg=name)
        assert 0.1 < np.quantile(column, 0.9) / SCALES[name] < 5, "of order one"


def test_unknown_features_are_named() -> None:
    with pytest.raises(InputError, match=r"no feature 'radius'; choose among r, phi"):
        normalised(torch.ones(1, 2), ("r", "phi"), SCALES, ("radius",))
    with pytest.raises(InputError, match="the feature 'r' has no scale"):
        normalised(torch.ones(1, 1), ("r",), {"phi": 1.0}, ("r",))


def test_values_are_finite_though_their_sum_may_not_be() -> None:
    ids, names = torch.arange(10), ["r", "phi", "z"]
    large = torch.full((10, 3), 3e38)
    check_finite("event: node", names, large, names, ids)
    large[3, 2] = float("nan")
    check_finite("event: node", ["r", "phi"], large, names, ids)
    with pytest.raises(InputError, match="event: node 3 has z = nan"):
        check_finite("event: node", ["z"], large, names, ids)
