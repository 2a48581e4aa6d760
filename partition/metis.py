"""Parts that balance edges and cut few of them: METIS, recursive bisection."""

import numpy as np
import pymetis

from bigtrk.errors import InputError
from partition.adjacency import Adjacency, Integers


def bisect(graph: Adjacency, parts: int, seed: int) -> Integers:
    """Returns the part of each node, in 0..parts-1: [N] int64, a function of the arguments alone.

    The parts are the leaves of a bisection tree in order, so `part * K // parts` merges them into
    any smaller power of two K. A part may be empty where `parts` comes close to N.

    Raises:
        InputError: there are more parts than nodes, or METIS counts in too few bits.
        RuntimeError: METIS failed.

    Source: G. Karypis, V. Kumar, SIAM J. Sci. Comput. 20 (1998) 359.
    """
    check_parts("this graph", graph.n_nodes, parts)
    if parts == 1:
        return np.zeros(graph.n_nodes, dtype=np.int64)
    check_width("this graph", graph)
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
    """Refuses a graph with counts or sums of weights above METIS's largest integer.

    METIS would wrap around, and crash or cut badly.

    Raises:
        InputError: one is above it; names the event and the remedy.
    """
    most = int(np.iinfo(pymetis.zero_copy_dtype()).max)
    counts = {
        "edges counted from either end": len(graph.neighbours),
        "units of weight (16 for each end of an edge, 1 for each node)": graph.node_weight.sum(),
    }
    for what, count in counts.items():
        if count > most:
            raise InputError(
                f"{event}: has {count:,} {what}, more than the METIS of this pymetis counts to, "
                f"{most:,}; install a pymetis whose METIS has 64-bit integers (IDXTYPEWIDTH=64), "
                f"or use --method wedges"
            )


def check_parts(event: str, n_nodes: int, parts: int) -> None:
    """Refuses to cut a graph into more parts than it has nodes (METIS crashes or leaves gaps).

    Raises:
        InputError: there are more parts; names the event, both counts and the remedy.
    """
    if parts > max(n_nodes, 1):
        raise InputError(
            f"{event}: {parts} parts asked of a graph with {n_nodes} nodes; "
            f"use --parts {max(n_nodes, 1)} or less or a larger --max-edges, or train it whole: "
            f"name the graphs beside the sectors in data.train"
        )
