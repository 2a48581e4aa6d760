"""Wedges against a plain selection of hits, and turns against rotations of their coordinates."""

import math

import pytest
import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import Sector, empty_sector, whole_sector
from bigtrk.graphs.features import EDGE_FEATURES, edge_columns, with_eta
from bigtrk.sampling.wedges import cut_wedge, turn
from tests.present import present

PARTS, OFFSET = 5, 2.0


@pytest.fixture(scope="module")
def event() -> Sector:
    graph = build_graph(simulate_event(100, seed=3), WindowBuilder(builtin_windows()))
    return whole_sector(graph)


def column(event: Sector, name: str) -> Tensor:
    return event.node_features[:, event.node_feature_names.index(name)]


def test_wedges_share_out_the_hits(event: Sector) -> None:
    wedges = [cut_wedge(event, part, PARTS, OFFSET) for part in range(PARTS)]
    assert torch.cat([wedge.node_id for wedge in wedges]).sort().values.tolist() == list(
        range(event.n_nodes)
    )
    width = 2 * math.pi / PARTS
    for part, wedge in enumerate(wedges):
        inside = (column(wedge, "phi") - OFFSET - part * width).remainder(2 * math.pi)
        # Float32 angles at a border may round to either side.
        assert ((inside < width + 1e-5) | (inside > 2 * math.pi - 1e-5)).all()
        assert (wedge.part, wedge.parts, wedge.n_owned) == (part, PARTS, wedge.n_nodes)


def test_a_wedge_has_the_edges_between_its_hits(event: Sector) -> None:
    wedge = cut_wedge(event, 2, PARTS, OFFSET)
    nodes = set(wedge.node_id.tolist())
    expected = [i for i, (a, b) in enumerate(event.edge_index.T.tolist()) if {a, b} <= nodes]
    assert expected
    assert wedge.edge_id.tolist() == event.edge_id[expected].tolist()
    assert wedge.node_id[wedge.edge_index].tolist() == event.edge_index[:, expected].tolist()
    assert present(wedge.y).tolist() == present(event.y)[expected].tolist()
    assert present(wedge.modules).tolist() == present(event.modules)[wedge.node_id].tolist()


@pytest.mark.parametrize("mirror_phi", [False, True])
@pytest.mark.parametrize("mirror_z", [False, True])
def test_features_of_edges_turn_with_their_hits(
    event: Sector, mirror_phi: bool, mirror_z: bool
) -> None:
    turned = turn(event, 1.3, mirror_phi, mirror_z)
    r, phi, z = (column(event, name).double().numpy() for name in ("r", "phi", "z"))
    phi = (phi + 1.3) * (-1 if mirror_phi else 1)
    nodes = with_eta(r, (phi + math.pi) % (2 * math.pi) - math.pi, z * (-1 if mirror_z else 1))
    for name, values in nodes.items():
        torch.testing.assert_close(
            column(turned, name).double(), torch.from_numpy(values), atol=1e-5, rtol=1e-5
        )
    edges = edge_columns(nodes, event.edge_index.numpy())
    for i, name in enumerate(EDGE_FEATURES):
        found, expected = turned.edge_features[:, i].double(), torch.from_numpy(edges[name])
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-3)


def test_hits_without_phi_are_refused() -> None:
    with pytest.raises(InputError, match=r"no feature 'phi' for wedges; set sampling\.method=none"):
        cut_wedge(empty_sector(("r", "z"), ()), 0, 2, 0.0)
