"""Tests what builders read of an event."""

from dataclasses import replace
from math import pi

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.tracks.evaluation import scored_graph
from tests.tracks.small_event import small_event

SCORES = torch.tensor([0.25], dtype=torch.float64)


def test_hits_are_where_their_features_say() -> None:
    event = small_event([1, 1], [(0, 1, True)], {1: 2.0})
    features = torch.tensor([[2.0, 0.0, 5.0, 0.0], [4.0, pi / 2, -6.0, 0.0]])
    graph = scored_graph(replace(event, node_features=features), SCORES)
    assert graph.position[0].tolist() == [2, 0, 5]
    assert graph.position[1].tolist() == pytest.approx([0, 4, -6], abs=1e-6)
    assert (graph.edge_index.tolist(), graph.scores.tolist()) == ([[0], [1]], [0.25])
    assert (graph.n_hits, graph.modules) == (2, None)


def test_a_graph_without_positions_is_named() -> None:
    event = small_event([1, 1], [(0, 1, True)], {1: 2.0})
    unknown = replace(event, node_feature_names=("r", "angle", "z", "eta"))
    message = r"^small: has no node feature 'phi', .* whose r, phi and z .*; store them in its"
    with pytest.raises(InputError, match=message):
        scored_graph(unknown, SCORES)
