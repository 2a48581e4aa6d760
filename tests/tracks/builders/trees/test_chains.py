"""Tests triplets and chains of free hits: against all paths of small graphs, and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from bigtrk.tracks.builders import chains as limits
from bigtrk.tracks.builders.builder import numbered, outward_edges
from bigtrk.tracks.builders.candidates import FEATURES, HitGroups, are_pure
from bigtrk.tracks.builders.chains import Chains, find_chains, find_triplets, take_chains
from tests.tracks.builders.events import helix_event, random_graph

Path = tuple[int, ...]


def paths_of(chains: Chains) -> list[Path]:
    return [tuple(one) for one in np.split(chains.hits.hit, chains.hits.begin)[1:]]


def judged(features: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(0.5 + 0.5 * np.sin(1e3 * features.astype(np.float64)).mean(axis=1), float)


@pytest.mark.parametrize("seed", range(6))
def test_triplets_and_chains_are_all_paths_through_free_hits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = helix_event(seed, 12)[0] if seed % 2 else random_graph(rng, 12, 30)
    free = rng.random(graph.n_hits) < 0.8
    edges = outward_edges(graph, limits.LOWEST_SCORE)
    step = set(zip(edges.source.tolist(), edges.destination.tolist(), strict=True))
    assert graph.modules is not None
    module = [tuple(one) for one in graph.modules.tolist()]
    triplets = find_triplets(graph, free)
    assert set(paths_of(triplets.chains)) == {
        (a, b, c)
        for a, b in step
        for one, c in step
        if one == b and free[[a, b, c]].all() and len({module[a], module[b], module[c]}) == 3
    }
    log_score = np.log(judged(triplets.chains.features))
    known = zip(paths_of(triplets.chains), log_score, strict=True)
    paths = [(one, total) for one, total in known if total > np.log(limits.LOWEST_TRIPLET)]
    links, found = dict(paths), set()
    while paths:
        found |= {path for path, _ in paths if len(path) >= 4}
        paths = [
            ((*path, link[2]), total + score)
            for path, total in paths
            for link, score in links.items()
            if link[:2] == path[-2:] and total + score > limits.LOWEST_SUM
            if module[link[2]] not in {module[one] for one in path}
        ]
    chains = find_chains(graph, triplets, judged, 4)
    assert set(paths_of(chains)) == found
    assert np.isfinite(chains.features).all()


def test_a_hit_keeps_its_best_edges_and_a_length_its_best_chains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, _ = helix_event(0, 12)
    free = np.ones(graph.n_hits, bool)
    monkeypatch.setattr(limits, "MOST_EDGES", 1)
    edges, all_edges = find_triplets(graph, free).edges, outward_edges(graph, limits.LOWEST_SCORE)
    for end in ("source", "destination"):
        assert np.bincount(getattr(edges, end)).max() == 1
    for hit, score in zip(edges.destination, edges.score, strict=True):
        assert score == all_edges.score[all_edges.destination == hit].max()
    triplets = find_triplets(graph, free)
    monkeypatch.setattr(limits, "MOST_CHAINS", 5)
    best = np.sort(judged(triplets.chains.features))[-5:]
    chains = find_chains(graph, triplets, judged, 3)
    lowest = chains.features[chains.hits.size == 3, FEATURES.index("lowest_score")]
    np.testing.assert_allclose(1 / (1 + np.exp(-np.sort(lowest))), best, rtol=1e-5)


def test_copies_and_the_order_of_edges_change_nothing() -> None:
    graph, _ = helix_event(2, 12)
    order = np.random.default_rng(0).permutation(2 * graph.scores.size)
    copied = replace(
        graph,
        edge_index=np.concatenate([graph.edge_index, graph.edge_index[::-1]], axis=1)[:, order],
        scores=np.concatenate([graph.scores, graph.scores])[order],
    )
    free = np.ones(graph.n_hits, bool)
    one, other = (
        find_chains(given, find_triplets(given, free), judged, 3) for given in (graph, copied)
    )
    np.testing.assert_array_equal(other.hits.hit, one.hits.hit)
    np.testing.assert_array_equal(other.features, one.features)


def test_pure_triplets_are_of_one_particle_and_not_of_noise() -> None:
    graph, particle_id = helix_event(1, 5)
    particle_id[:8] = 0
    triplets = find_triplets(graph, np.ones(graph.n_hits, bool)).chains
    expected = [len({*particle_id[list(one)]}) == 1 and one[0] >= 8 for one in paths_of(triplets)]
    assert are_pure(triplets.hits, particle_id).tolist() == expected
    assert any(expected)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_chains_are_taken_in_turn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, gain = rng.integers(3, 6, 60), rng.integers(-2, 4, 60) / 2.0  # many are equally good
    chains = [rng.permutation(40)[:n] for n in size]
    before = np.array([7] * 4 + [-1] * 36)
    expected = before.copy()
    for one in np.argsort(-gain * size, kind="stable"):
        if gain[one] > 0 and (expected[chains[one]] == -1).all():
            expected[chains[one]] = 100 + one
    found = take_chains(HitGroups(np.concatenate(chains), size), gain, before, 4)
    assert found.tolist() == numbered(expected, 4).tolist()  # shorter ones only take their hits
