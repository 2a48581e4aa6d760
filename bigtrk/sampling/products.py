"""ShaDow by sparse matrix products (Tripathy et al., section III-C).

Their A is split as A = B S, so that repeated edges stay apart: B [N, E] leads from a node to the
edges that end there, S [E, N] from an edge to its source.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bigtrk.sampling.draws import distinct_below, drawn
from bigtrk.sampling.subgraphs import InEdges, Rows, first_rows
from bigtrk.sampling.walk import Bulk, Walk


def sample(graph: InEdges, roots: Rows, walk: Walk, key: int) -> Bulk:
    """The engine of sparse products (walk.Engine)."""
    into, source = _incidence(graph)
    touched = _touched(into, source, roots, walk, key)
    # Edges of each root whose destination, and whose source, is touched: the induced ones.
    induced = _sorted((touched @ into).multiply(touched @ source.T))
    root = np.repeat(np.arange(len(roots)), np.diff(induced.indptr))
    edge = induced.indices.astype(np.int64)
    ends = [graph.source[edge], np.searchsorted(graph.first, edge, side="right") - 1]
    return Bulk(
        node=touched.indices.astype(np.int64),
        node_at=touched.indptr.astype(np.int64),
        edge=edge,
        edge_at=induced.indptr.astype(np.int64),
        source=_rows(touched, root, ends[0]),
        destination=_rows(touched, root, ends[1]),
    )


def _incidence(graph: InEdges) -> tuple[csr_array, csr_array]:
    """B and S."""
    n_edges = len(graph.source)
    into = _ones(graph.first, np.arange(n_edges), n_edges)
    return into, _ones(np.arange(n_edges + 1), graph.source, graph.n_nodes)


def _touched(into: csr_array, source: csr_array, roots: Rows, walk: Walk, key: int) -> csr_array:
    """F [R, N]: the nodes that the walk from each root touches."""
    n_nodes = into.shape[0]
    at, owner = roots, np.arange(len(roots))  # a row of Q each: its node, and its root
    keys = drawn(np.full(len(roots), key, np.uint64), roots)
    counter = np.zeros(len(roots), np.int64)  # of each root's first row
    nodes, owners = [at], [owner]
    for _ in range(walk.depth):
        first = np.searchsorted(owner, np.arange(len(roots) + 1))
        place = np.arange(len(owner)) - first[owner]
        steps = _sorted(_one_each(at, n_nodes) @ into)
        draws = counter[owner] + walk.fanout * place
        edge, size = _chosen(steps, walk.fanout, keys[owner], draws)
        counter += walk.fanout * np.diff(first)
        at = (_one_each(edge, into.shape[1]) @ source).indices
        owner = np.repeat(owner, size)
        nodes.append(at)
        owners.append(owner)
    rows, columns = np.concatenate(owners), np.concatenate(nodes)
    ones = np.ones(len(rows), np.int8)
    touched = _sorted(csr_array((ones, (rows, columns)), shape=(len(roots), n_nodes)))
    touched.data[:] = 1
    return touched


def _chosen(
    steps: csr_array, fanout: int, key: NDArray[np.uint64], counter: Rows
) -> tuple[Rows, Rows]:
    """Columns of `fanout` nonzeros of each row of P, all of a row that has no more; how many."""
    degree = np.diff(steps.indptr)
    many = degree > fanout
    size = np.where(many, fanout, degree)
    begin = first_rows(size)
    position = np.arange(begin[-1]) - np.repeat(begin[:-1], size)
    position[np.repeat(many, size)] = distinct_below(
        degree[many].astype(np.int64), fanout, key[many], counter[many]
    ).ravel()
    position += np.repeat(steps.indptr[:-1], size)
    return steps.indices[position], size


def _rows(touched: csr_array, root: Rows, node: Rows) -> Rows:
    """The rows of nodes of their roots' subgraphs: [L]."""
    n_nodes = touched.shape[1]
    owner = np.repeat(np.arange(touched.shape[0]), np.diff(touched.indptr))
    found: Rows = np.searchsorted(owner * n_nodes + touched.indices, root * n_nodes + node)
    return found


def _one_each(column: Rows, n_columns: int) -> csr_array:
    """Q: a row with one nonzero for each column given."""
    return _ones(np.arange(len(column) + 1), column, n_columns)


def _ones(first: Rows, column: NDArray[np.integer], n_columns: int) -> csr_array:
    shape = (len(first) - 1, n_columns)
    return csr_array((np.ones(len(column), np.int8), column, first), shape=shape)


def _sorted(matrix: csr_array) -> csr_array:
    """Repeated entries summed, each row ascending."""
    matrix = matrix.tocsr()
    matrix.sum_duplicates()
    return matrix
