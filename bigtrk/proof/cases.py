"""The graphs on which a model is proved, and what each is compared with."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bigtrk.graphs.sector import Sector, whole_sector
from bigtrk.proof.graphs import KINDS, draw, shuffled
from bigtrk.proof.probe import ORDER, RANDOM

PARTS = (2, 3, 4)
# A model that differs in eval mode differs there as it would in training mode: few graphs show it.
EVALUATED = (("directed", 2), ("hub", 3), ("empty sector", 4))


class Case(NamedTuple):
    """A graph, what it is compared with, and why rows differ there if that is known."""

    graph: str
    whole: Sector
    parts: Sequence[Sector]
    why: str | None = None


def cases(n_node_features: int, n_edge_features: int) -> Iterator[Case]:
    """Yields all cases of training mode, those of a whole graph first."""
    sizes = n_node_features, n_edge_features
    yield from _of_a_whole(*sizes)
    for kind in KINDS:
        for parts in PARTS:
            yield _cut(kind, parts, *sizes)


def evaluation_cases(n_node_features: int, n_edge_features: int) -> Iterator[Case]:
    """Yields the cases of eval mode."""
    sizes = n_node_features, n_edge_features
    of_eval = [*_of_a_whole(*sizes), *(_cut(kind, parts, *sizes) for kind, parts in EVALUATED)]
    for case in of_eval:
        yield case._replace(graph=f"{case.graph}, eval mode")


def _of_a_whole(n_node_features: int, n_edge_features: int) -> Iterator[Case]:
    """Yields what a whole graph can show: what is random, and what depends on the order."""
    whole = whole_sector(draw(KINDS[0], PARTS[0], n_node_features, n_edge_features)[0])
    yield Case("the same graph again", whole, [whole], RANDOM)
    yield Case("the same graph in another order", whole, [shuffled(whole)], ORDER)


def _cut(kind: str, parts: int, n_node_features: int, n_edge_features: int) -> Case:
    graph, sectors = draw(kind, parts, n_node_features, n_edge_features)
    return Case(kind, whole_sector(graph), sectors)
