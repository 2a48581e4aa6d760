"""Tests chains of free hits: against all paths of small graphs, and by hand."""

import numpy as np
import pytest

from bigtrk.tracks.builders.builder import outward_edges
from bigtrk.tracks.builders.chains import LOWEST_SCORE, LOWEST_SUM, find_chains, take_chains
from tests.tracks.builders.events import helix_event, random_graph


@pytest.mark.parametrize("seed", range(6))
def test_chains_are_all_paths_through_free_hits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = helix_event(seed, 12)[0] if seed % 2 else random_graph(rng, 12, 30)
    free = rng.random(graph.n_hits) < 0.8
    edges = outward_edges(graph, LOWEST_SCORE)
    step = set(zip(edges.source.tolist(), edges.destination.tolist(), edges.score, strict=True))
    assert graph.modules is not None
    module = [tuple(one) for one in graph.modules.tolist()]
    paths: list[tuple[tuple[int, ...], float]]
    paths, found = [((hit,), 0.0) for hit in np.flatnonzero(free).tolist()], set()
    while paths:
        paths = [
            ((*path, to), total + np.log(score))
            for path, total in paths
            for at, to, score in step
            if at == path[-1] and free[to] and total + np.log(score) > LOWEST_SUM
            if module[to] not in {module[one] for one in path}
        ]
        found |= {path for path, _ in paths if len(path) >= 4}
    chains = find_chains(graph, free, 4)
    assert {tuple(one) for one in np.split(chains.hits.hit, chains.hits.begin[1:])} - {()} == found
    assert np.isfinite(chains.features).all()


def test_the_best_chains_are_taken_in_turn() -> None:
    chains = find_chains(helix_event(0, 3)[0], np.ones(24, bool), 3)
    taken = take_chains(chains.hits, np.float64(-7.5) + chains.hits.size, np.full(24, -1), 3)
    assert set(np.bincount(taken[taken >= 0]).tolist()) == {8}
