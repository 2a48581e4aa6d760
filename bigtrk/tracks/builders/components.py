"""Tracks as connected components of the edges that a model keeps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from bigtrk.tracks.builders.builder import ScoredGraph, numbered


@dataclass(frozen=True)
class Components:
    """Edges with a score above `score_cut` are kept, and hits that they join are a track."""

    score_cut: float = 0.5

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        kept = graph.edge_index[:, graph.scores > self.score_cut]
        return numbered(components(kept, graph.n_hits), min_hits)


def components(edge_index: NDArray[np.int64], n_hits: int) -> NDArray[np.int64]:
    """Numbers the connected components, whatever the edges' direction: [2, E] -> [N]."""
    weight = np.ones(edge_index.shape[1], bool)
    joined = coo_matrix((weight, (edge_index[0], edge_index[1])), (n_hits, n_hits))
    _, component = connected_components(joined, directed=False)
    return component.astype(np.int64)
