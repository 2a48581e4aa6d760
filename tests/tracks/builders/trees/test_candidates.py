"""Tests candidates for tracks: which there are, their features, and which are good."""

from collections import Counter
from math import log

import numpy as np
import pytest

from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.candidates import (
    FEATURES,
    MOST_HITS,
    Candidates,
    are_good,
    find_candidates,
)
from bigtrk.tracks.builders.hit_tree import grow
from tests.tracks.builders.events import helix_event, scored


def candidates_of(graph: ScoredGraph, min_hits: int = 3) -> Candidates:
    return find_candidates(grow(graph), graph.position, min_hits)


def hits_of(candidates: Candidates) -> list[list[int]]:
    ends = np.cumsum(candidates.hits.size)
    return [sorted(hits.tolist()) for hits in np.split(candidates.hits.hit, ends[:-1])]


def column(candidates: Candidates, name: str) -> list[float]:
    values: list[float] = candidates.features[:, FEATURES.index(name)].tolist()
    return values


def test_candidates_of_a_straight_track() -> None:
    position = [[3.0, 30.0 * k, 5.0 + 15.0 * k] for k in range(1, 5)]
    candidates = candidates_of(scored([(0, 1, 0.9), (1, 2, 0.8), (2, 3, 0.6)], position))
    assert hits_of(candidates) == [[0, 1, 2], [0, 1, 2, 3]]
    assert column(candidates, "hits") == [3, 4]
    low, middle, high = (log(score / (1 - score)) for score in (0.6, 0.8, 0.9))
    assert column(candidates, "lowest_score") == pytest.approx([middle, low])
    assert column(candidates, "mean_score") == pytest.approx(
        [(middle + high) / 2, (low + middle + high) / 3]
    )
    assert column(candidates, "next_score") == pytest.approx([low, log(0.01 / 0.99)])
    assert column(candidates, "next_hits") == pytest.approx([log(2), 0])
    for name in ("circle_residual", "line_residual"):
        assert column(candidates, name) == pytest.approx([log(1e-3)] * 2)
    assert column(candidates, "d0") == pytest.approx([log(3.01)] * 2)
    assert column(candidates, "z0") == pytest.approx([log(6)] * 2)
    assert column(candidates, "radius") == pytest.approx([log(1e6)] * 2)
    assert column(candidates, "slope") == pytest.approx([np.arcsinh(0.5)] * 2)
    assert column(candidates, "first_r") == pytest.approx([np.hypot(3, 30)] * 2)
    assert column(candidates, "last_r") == pytest.approx([np.hypot(3, 90), np.hypot(3, 120)])


def test_scores_are_those_of_the_edges_that_united_the_hits() -> None:
    graph, _ = helix_event(1)
    tree = grow(graph)
    united: list[list[float]] = [[] for _ in range(len(tree.hits))]
    for (left, right), score in zip(tree.children.tolist(), tree.score.tolist(), strict=True):
        united.append([*united[left], *united[right], score])
    candidates = find_candidates(tree, graph.position, 3)
    scores = [united[len(tree.hits) + union] for union in candidates.union.tolist()]
    logits = [[log(score / (1 - score)) for score in row] for row in scores]
    assert column(candidates, "lowest_score") == pytest.approx([min(x) for x in logits], rel=1e-5)
    means = [sum(x) / len(x) for x in logits]
    assert column(candidates, "mean_score") == pytest.approx(means, rel=1e-4, abs=1e-5)


def test_features_do_not_depend_on_where_around_the_beam_nor_on_a_mirror() -> None:
    graph, _ = helix_event(3)
    cos, sin = np.cos(2.0), np.sin(2.0)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    for change in (turn, np.diag([1, -1, 1]), np.diag([1, 1, -1])):
        changed = ScoredGraph(
            graph.edge_index, graph.scores, graph.position @ change, graph.modules
        )
        np.testing.assert_allclose(
            candidates_of(changed).features, candidates_of(graph).features, rtol=1e-3, atol=1e-3
        )


def test_a_long_chain_has_candidates_of_limited_length() -> None:
    n_hits = 3000
    edges = [(hit, hit + 1, 0.9 - hit / n_hits / 2) for hit in range(n_hits - 1)]
    candidates = candidates_of(scored(edges, [[1.0, hit, 0] for hit in range(n_hits)]))
    assert candidates.hits.size.tolist() == list(range(3, MOST_HITS + 1))


def test_good_tracks_by_counting() -> None:
    rng = np.random.default_rng(8)
    graph, particle_id = helix_event(4)
    particle_id = np.where(rng.random(len(particle_id)) < 0.1, 0, particle_id << 50)
    candidates = candidates_of(graph)
    sizes = Counter(particle_id.tolist())
    found = are_good(candidates.hits, particle_id)
    for hits, good in zip(hits_of(candidates), found, strict=True):
        particle, shared = Counter(particle_id[hits].tolist()).most_common(1)[0]
        pure = shared > 0.75 * len(hits)
        assert good == (pure and 2 * shared > sizes[particle] and particle != 0)
    assert 0 < found.sum() < len(found)
