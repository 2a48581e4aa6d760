"""Tracks as connected components of the edges that a model keeps.

Shapes: N hits, K edges.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components

from bigtrk.tracks.builders.builder import ScoredGraph, numbered


@dataclass(frozen=True)
class Components:
    """Edges with a score above `score_cut` are kept, and hits that they join are a track."""

    score_cut: float = 0.5

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        source, destination = graph.edge_index[:, graph.scores > self.score_cut]
        return numbered(components(adjacency(source, destination, graph.n_hits)), min_hits)


def adjacency(source: NDArray[np.int64], destination: NDArray[np.int64], n_hits: int) -> csr_matrix:
    """Returns which hits edges join, each pair once however often: [K], [K] -> [N, N]."""
    joined = np.ones(len(source), bool)
    return coo_matrix((joined, (source, destination)), (n_hits, n_hits)).tocsr()


def components(joined: csr_matrix) -> NDArray[np.int64]:
    """Numbers the connected components, whatever the edges' direction: [N, N] -> [N]."""
    _, component = connected_components(joined, directed=False)
    return np.asarray(component, np.int64)
