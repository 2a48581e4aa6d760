"""The partitioners of `--method`: METIS, and wedges in the azimuth phi. Shapes: N nodes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pymetis
import scipy.sparse
import torch
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph, is_ordered

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Adjacency:
    """A symmetric graph without self loops; L counts its edges twice, once from either end.

    starts [N + 1], neighbours [L], edge_weight [L], node_weight [N], all int64. Edges between the
    same two nodes, in either direction, are one edge whose weight is their number.
    """

    starts: Integers
    neighbours: Integers
    edge_weight: Integers
    node_weight: Integers

    @property
    def n_nodes(self) -> int:
        return len(self.node_weight)


def node_weight(edge_index: Integers, n_nodes: int) -> Integers:
    """Returns the weight of each node, 16 x its number of edge ends + 1: [2, E] -> [N].

    Parts of equal weight have about equally many edges, to which a rank's time and memory are
    proportional. The 1 spreads nodes without edges; without the factor 16 it would outweigh edges
    in sparse graphs (event 1000 in 98 k edges, 8 parts: imbalance 1.13 instead of 1.01).
    """
    return 16 * np.bincount(edge_index.reshape(-1), minlength=n_nodes) + 1


def adjacency(edge_index: Integers, n_nodes: int) -> Adjacency:
    """Makes edges [2, E] int64 undirected, without self loops, and merges repeated edges."""
    # 32 bits are enough for node numbers and take a third off the time.
    source, destination = edge_index.astype(np.int32)
    joins_two = source != destination
    if not joins_two.all():
        source, destination = source[joins_two], destination[joins_two]
    ones = np.ones(len(source), dtype=np.int32)
    shape = (n_nodes, n_nodes)
    if is_ordered(torch.from_numpy(edge_index)):  # as those of built graphs: 0.3 to 0.7 of the time
        starts = np.zeros(n_nodes + 1, dtype=np.int32)
        np.cumsum(np.bincount(destination, minlength=n_nodes), out=starts[1:])
        directed = scipy.sparse.csr_array((ones, source, starts), shape=shape)
        directed.sum_duplicates()
    else:
        directed = scipy.sparse.coo_array((ones, (destination, source)), shape=shape).tocsr()
    both = (directed + directed.T).tocsr()
    starts, neighbours, weight = both.indptr, both.indices, both.data
    # One after the other: of a large graph each takes as much memory as the graph's edges.
    del both, directed
    neighbours = neighbours.astype(np.int64)
    weight = weight.astype(np.int64)
    return Adjacency(
        starts=starts.astype(np.int64),
        neighbours=neighbours,
        edge_weight=weight,
        node_weight=node_weight(edge_index, n_nodes),
    )


def bisect(graph: Adjacency, parts: int, seed: int) -> Integers:
    """Returns the part of each node, in 0..parts-1: [N] int64, a function of the arguments alone.
    RuntimeError if METIS fails (G. Karypis, V. Kumar, SIAM J. Sci. Comput. 20 (1998) 359).

    The parts are the leaves of a bisection tree in order, so `part * K // parts` merges them into
    any smaller power of two K. A part may be empty if `parts` comes close to N. METIS crashes on
    graphs that `check_parts` and `check_width` refuse.
    """
    if parts == 1:
        return np.zeros(graph.n_nodes, dtype=np.int64)
    index_type = pymetis.zero_copy_dtype()
    result = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(
            graph.starts.astype(index_type, copy=False),
            graph.neighbours.astype(index_type, copy=False),
        ),
        vweights=graph.node_weight.astype(index_type, copy=False),
        eweights=graph.edge_weight.astype(index_type, copy=False),
        recursive=True,
        options=pymetis.Options(seed=seed),
    )
    part = np.asarray(result.vertex_part, dtype=np.int64)
    if part.shape != (graph.n_nodes,) or part.min() < 0 or part.max() >= parts:
        raise RuntimeError(f"METIS returned no partition of {graph.n_nodes} nodes in {parts} parts")
    return part


def check_width(event: str, graph: Adjacency) -> None:
    """Raises InputError if counts or weights exceed METIS's integers: it crashes or cuts badly."""
    most = int(np.iinfo(pymetis.zero_copy_dtype()).max)
    counts = {
        "edges (each counted twice)": len(graph.neighbours),
        "units of weight (16 for each end of an edge, 1 for each node)": graph.node_weight.sum(),
    }
    for what, count in counts.items():
        if count > most:
            raise InputError(
                f"{event}: has {count:,} {what}, but the installed pymetis counts only to "
                f"{most:,}; use --method wedges, or install a pymetis whose METIS has 64-bit "
                f"integers (IDXTYPEWIDTH=64)"
            )


def check_parts(event: str, n_nodes: int, parts: int) -> None:
    """Raises InputError for more parts than nodes, where METIS crashes or leaves parts empty."""
    if parts > max(n_nodes, 1):
        raise InputError(
            f"{event}: {n_nodes} nodes cannot be cut into {parts} sectors; use --parts "
            f"{max(n_nodes, 1)} or less, or a larger --max-edges, or train on the whole graph"
        )


def wedges(graph: EventGraph, parts: int) -> Integers:
    """Returns the wedge of each node, in 0..parts-1 by ascending phi: [N] int64. InputError if
    nodes have neither phi nor x and y. The wedges have about equally many edges, as METIS's parts
    have. `part * K // parts` merges wedges that are neighbours in phi.
    """
    order = np.argsort(_azimuth(graph), kind="stable")
    weight = node_weight(graph.edge_index.numpy(), graph.n_nodes)[order]
    # A node belongs to the wedge that its weight's midpoint falls in; doubled to stay in integers.
    midpoint = 2 * np.cumsum(weight) - weight
    part = np.empty(graph.n_nodes, dtype=np.int64)
    part[order] = midpoint * parts // max(2 * int(weight.sum()), 1)
    return part


def _azimuth(graph: EventGraph) -> NDArray[np.float32]:
    """Returns a value per node, [N], that ascends with phi: phi in any unit, or atan2(y, x)."""
    columns = dict(zip(graph.node_feature_names, graph.node_features.numpy().T, strict=True))
    if "phi" in columns:
        return np.asarray(columns["phi"])
    if "x" in columns and "y" in columns:
        return np.asarray(np.arctan2(columns["y"], columns["x"]))
    raise InputError(
        f"{graph.name}: --method wedges needs the node feature 'phi', or 'x' and 'y', but the "
        f"graph has only {', '.join(graph.node_feature_names)}; use --method metis"
    )


class Method(StrEnum):
    """The method that assigns nodes to parts."""

    METIS = "metis"
    WEDGES = "wedges"


# Maps a graph, its undirected form, parts, a seed to the part of each node, in 0..parts-1: [N]
# int64, a function of these alone. `part * K // parts` merges parts of consecutive numbers into any
# smaller power of two K, so these should be neighbours. Raises InputError if it cannot cut a graph.
Partitioner = Callable[[EventGraph, Adjacency, int, int], Integers]

PARTITIONERS: dict[Method, Partitioner] = {
    Method.METIS: lambda _, undirected, parts, seed: bisect(undirected, parts, seed),
    Method.WEDGES: lambda graph, _, parts, __: wedges(graph, parts),
}
