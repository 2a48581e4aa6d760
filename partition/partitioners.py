"""The partitioners there are; `--method` chooses one.

Shapes: N nodes of a graph.
"""

from collections.abc import Callable
from enum import StrEnum

from bigtrk.graphs.event_graph import EventGraph
from partition.adjacency import Adjacency, Integers
from partition.metis import bisect
from partition.wedges import wedges


class Method(StrEnum):
    """The method by which nodes are dealt out to parts."""

    METIS = "metis"
    WEDGES = "wedges"


# Maps a graph, its undirected form, parts, a seed to the part of each node, in 0..parts-1: [N]
# int64, a function of these alone. `part * K // parts` merges neighbouring parts into any smaller
# power of two K, so these should belong together. Raises InputError where the graph cannot be cut
# so.
Partitioner = Callable[[EventGraph, Adjacency, int, int], Integers]

PARTITIONERS: dict[Method, Partitioner] = {
    Method.METIS: lambda _, undirected, parts, seed: bisect(undirected, parts, seed),
    Method.WEDGES: lambda graph, _, parts, __: wedges(graph, parts),
}
