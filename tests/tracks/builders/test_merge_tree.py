"""Tests tracks by the merge tree: by hand, and of events that have hardly any hits."""

from dataclasses import replace

import numpy as np
import pytest

from bigtrk.errors import InputError
from bigtrk.tracks.builders.merge_tree import MergeTree
from tests.tracks.builders.events import helix_event, quality_of, scored

# P is the mean score of the edges, as far as a mean of logits is.
BY_SCORE = quality_of("mean_score", factor=1, constant=0)
CHAIN = [[1.0, 10.0 * hit, 0.0] for hit in range(8)]


def chain(*scores: float) -> list[tuple[int, int, float]]:
    return [(hit, hit + 1, score) for hit, score in enumerate(scores)]


def test_each_track_has_a_cut_of_its_own() -> None:
    """No cut finds both the chain of weak edges and, apart, the two that a better edge joins."""
    graph = scored(
        [*chain(0.99, 0.99, 0.7, 0.99, 0.99), (6, 7, 0.62), (7, 8, 0.62)],
        [[1.0, 10.0 * hit, 0.0] for hit in range(9)],
    )
    # 2 x 3 x (0.99 - T) is more than 6 x (0.7 - T).
    assert (
        MergeTree(quality_of("lowest_score", 1, 0), 0.5)(graph, 3).tolist()
        == [0] * 3 + [1] * 3 + [2] * 3
    )


def test_a_higher_threshold_drops_tracks() -> None:
    graph = scored([*chain(0.9, 0.9), (3, 4, 0.7), (4, 5, 0.7)], CHAIN[:6])
    found = [MergeTree(BY_SCORE, t)(graph, 3).tolist() for t in (0.0, 0.8, 0.95, 1.0)]
    assert found == [[0] * 3 + [1] * 3, [0] * 3 + [-1] * 3, [-1] * 6, [-1] * 6]


def test_no_track_has_two_hits_of_a_module() -> None:
    graph, _ = helix_event(0)
    assert graph.modules is not None
    track_id = MergeTree(replace(BY_SCORE, with_modules=True), 0.0)(graph, 3)
    in_tracks = track_id >= 0
    places = np.column_stack([track_id, graph.modules])[in_tracks]
    assert len(np.unique(places, axis=0)) == len(places) > 100


@pytest.mark.parametrize("n_hits", [0, 1, 5])
def test_hits_without_edges_are_in_no_track(n_hits: int) -> None:
    graph = scored([], CHAIN[:n_hits], [(8, 2, hit) for hit in range(n_hits)])
    quality = replace(BY_SCORE, with_modules=True)
    assert MergeTree(quality, 0.5)(graph, 3).tolist() == [-1] * n_hits


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_thresholds_outside_are_refused(threshold: float) -> None:
    with pytest.raises(InputError, match=r"must be from 0 to 1"):
        MergeTree(BY_SCORE, threshold)


def test_a_quality_learnt_with_modules_is_not_for_hits_without() -> None:
    graph, _ = helix_event(0)
    with_modules = replace(BY_SCORE, with_modules=True)
    with pytest.raises(InputError, match="lacks module ids of hits"):
        MergeTree(with_modules, 0.5)(replace(graph, modules=None), 3)
    with pytest.raises(InputError, match="has module ids of hits"):
        MergeTree(BY_SCORE, 0.5)(graph, 3)
