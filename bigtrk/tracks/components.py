"""Tracks as connected components of the edges that a model keeps."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

NO_TRACK = -1  # track_id of a hit in no track


def build_tracks(
    edge_index: NDArray[np.int64],
    scores: NDArray[np.floating],
    n_nodes: int,
    score_cut: float = 0.5,
    min_hits: int = 3,
) -> NDArray[np.int64]:
    """Finds each hit's track, or NO_TRACK: edge_index [2, E], scores [E] -> [N] int64.

    Edges with a score above `score_cut` are kept. Components of fewer than `min_hits` hits are no
    tracks; the others are numbered from 0, by their first hit.
    """
    source, destination = edge_index[:, scores > score_cut]
    kept = coo_matrix((np.ones(len(source), bool), (source, destination)), (n_nodes, n_nodes))
    _, component = connected_components(kept, directed=False)
    _, first, row, size = np.unique(
        component, return_index=True, return_inverse=True, return_counts=True
    )
    is_track = size >= min_hits
    number = np.full(len(size), NO_TRACK, np.int64)
    by_first_hit = np.argsort(first)
    tracks = by_first_hit[is_track[by_first_hit]]
    number[tracks] = np.arange(len(tracks))
    return number[row]
