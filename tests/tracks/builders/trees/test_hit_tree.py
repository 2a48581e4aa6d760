"""Tests trees of hits, compiled and plain: by hand, and against the definition with sets."""

from collections.abc import Sequence

import numpy as np
import pytest

from bigtrk.tracks.builders import hit_tree
from bigtrk.tracks.builders.builder import ScoredGraph, library
from bigtrk.tracks.builders.hit_tree import HitTree, grow
from tests.oracle.merge_tree import best_value, kruskal
from tests.tracks.builders.events import helix_event, random_graph, scored


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(hit_tree, "library", lambda: None)
    elif library() is None:
        pytest.skip("no C compiler")


def unions(tree: HitTree) -> list[tuple[frozenset[int], float]]:
    """Returns the hits of each union, by its children, and the score of its edge."""
    nodes = [frozenset({hit}) for hit in range(len(tree.hits))]
    for left, right in tree.children.tolist():
        nodes.append(nodes[left] | nodes[right])
    return list(zip(nodes[len(tree.hits) :], tree.score.tolist(), strict=True))


def defined(graph: ScoredGraph) -> list[tuple[frozenset[int], float]]:
    edges = zip(*graph.edge_index.tolist(), graph.scores.tolist(), strict=True)
    modules = None if graph.modules is None else graph.modules.tolist()
    return kruskal(list(edges), graph.position.tolist(), modules)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize(
    ("module", "other", "at", "united"),
    [
        ((8, 2, 1), (8, 2, 2), (9.0, 12.0, 0.0), True),  # 15 mm
        ((8, 2, 1), (8, 2, 2), (9.0, 12.0, 0.1), False),
        ((8, 2, 1), (8, 2, 1), (0.0, 0.1, 0.0), False),
        ((8, 2, 1), (8, 4, 1), (90.0, 0.0, 0.0), True),
        ((8, 2, 1), (7, 2, 1), (90.0, 0.0, 0.0), True),
    ],
)
def test_hits_that_exclude_each_other(
    module: Sequence[int], other: Sequence[int], at: Sequence[float], united: bool
) -> None:
    """Hits 0 and 2 never meet by an edge, only through hit 1 of another layer."""
    edges = [(0, 1, 0.9), (1, 2, 0.8)]
    position, modules = [[0.0, 0, 0], [50.0, 0, 0], at], [module, (13, 2, 1), other]
    assert len(unions(grow(scored(edges, position, modules)))) == 1 + united
    assert len(unions(grow(scored(edges, position)))) == 2


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("with_modules", [True, False])
def test_trees_are_what_the_definition_says(with_modules: bool) -> None:
    rng = np.random.default_rng(1)
    n_made = 0
    for _ in range(100):
        graph = random_graph(rng, n_hits=int(rng.integers(1, 25)), n_edges=int(rng.integers(60)))
        if not with_modules:
            graph = ScoredGraph(graph.edge_index, graph.scores, graph.position, None)
        found = unions(grow(graph))
        assert found == defined(graph)
        n_made += len(found)
    assert n_made > 500


@pytest.mark.usefixtures("passes")
def test_hits_of_a_union_lie_together() -> None:
    tree = grow(helix_event(1)[0])
    assert sorted(tree.hits) == list(range(len(tree.hits)))
    places = zip(tree.first.tolist(), tree.size.tolist(), tree.meeting.tolist(), strict=True)
    for (hits, _), (_, right), (first, size, meeting) in zip(
        unions(tree), tree.children.tolist(), places, strict=True
    ):
        assert set(tree.hits[first : first + size].tolist()) == hits
        assert first < meeting < first + size
        second = tree.hits[meeting : first + size].tolist()
        assert len(second) == (1 if right < len(tree.hits) else tree.size[right - len(tree.hits)])
    assert len(set(tree.meeting.tolist())) == len(tree.meeting)


def test_the_best_disjoint_unions_are_taken() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        tree = grow(random_graph(rng, n_hits=9, n_edges=30))
        values = rng.normal(size=len(tree.size))
        taken = tree.take_best(values)
        nodes = [hits for hits, _ in unions(tree)]
        assert sum(len(nodes[i]) for i in taken) == len(
            frozenset().union(*(nodes[i] for i in taken))
        )
        assert values[taken].sum() == pytest.approx(best_value(nodes, values.tolist()))


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        ([1.0, 1.0, 2.0], [2]),  # equal: the larger one
        ([1.0, 1.5, 2.0], [0, 1]),
        ([-1.0, 0.0, 0.0], []),
        ([-1.0, 1.0, 0.5], [1]),
    ],
)
def test_what_is_taken_of_two_pairs_and_their_union(values: list[float], taken: list[int]) -> None:
    line: list[list[float]] = [[hit, 0, 0] for hit in range(4)]
    tree = grow(scored([(0, 1, 0.9), (2, 3, 0.8), (1, 2, 0.7)], line))
    assert tree.take_best(np.array(values)).tolist() == taken
