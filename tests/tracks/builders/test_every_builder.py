"""Tests what every builder promises, whichever it is."""

import random

import numpy as np
import pytest

from bigtrk.tracks.builders.builder import NO_TRACK, ScoredGraph
from bigtrk.tracks.builders.registry import BUILDERS, make_builder
from bigtrk.tracks.names import BuilderName
from tests.tracks.builders.graphs import at


def random_event(seed: int) -> ScoredGraph:
    """Makes an event with many equal scores, repeated edges and hits without edges."""
    draw = random.Random(seed)
    near = [(a, a + draw.randint(1, 6)) for a in draw.choices(range(300), k=500)]
    position = np.random.default_rng(seed).normal(size=(320, 3)).cumsum(axis=0)
    return at(position, [(a, b, draw.choice([0.2, 0.6, 0.7, 0.9])) for a, b in [*near, *near[:50]]])


@pytest.mark.parametrize("name", BuilderName)
def test_the_order_of_edges_is_nothing_to_it(name: BuilderName) -> None:
    for seed in range(5):
        event = random_event(seed)
        tracks = make_builder(name)(event, 3)
        order = np.random.default_rng(seed).permutation(event.edge_index.shape[1])
        shuffled = ScoredGraph(
            event.edge_index[:, order], event.scores[order], event.position, event.modules
        )
        assert make_builder(name)(shuffled, 3).tolist() == tracks.tolist()


@pytest.mark.parametrize("name", BuilderName)
def test_tracks_are_numbered_by_their_first_hit_and_long_enough(name: BuilderName) -> None:
    for min_hits in (1, 2, 5):
        tracks = make_builder(name)(random_event(7), min_hits)
        assert tracks.dtype == np.int64
        found, first, size = np.unique(tracks, return_index=True, return_counts=True)
        is_track = found != NO_TRACK
        assert found[is_track].tolist() == list(range(is_track.sum()))
        assert (np.diff(first[is_track]) > 0).all()
        assert is_track.any()
        assert size[is_track].min() >= min_hits


@pytest.mark.parametrize("name", BuilderName)
def test_the_score_cut_is_given_or_its_own(name: BuilderName) -> None:
    own = make_builder(name)
    assert own == BUILDERS[name]()
    assert make_builder(name, 0.75).score_cut == 0.75 != own.score_cut
    event = random_event(3)
    kept = event.scores > 0.75
    above = ScoredGraph(event.edge_index[:, kept], event.scores[kept], event.position, None)
    assert make_builder(name, 0.75)(event, 3).tolist() == make_builder(name)(above, 3).tolist()
