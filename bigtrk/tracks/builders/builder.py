"""Defines what a track builder reads and gives: an event's scored graph, and the track of each hit.

Shapes: N hits, E edges.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

NO_TRACK = -1  # track_id of a hit in no track


@dataclass(frozen=True)
class ScoredGraph:
    """An event's scored graph, all that a track builder may read.

    edge_index [2, E] int64: the inner and the outer hit of each edge; scores [E]: in [0, 1].
    Of the hits: position [N, 3] float64 (x, y, z in mm), and modules [N, 3] int64 (volume, layer,
    module), or None where they are unknown.
    """

    edge_index: NDArray[np.int64]
    scores: NDArray[np.floating]
    position: NDArray[np.float64]
    modules: NDArray[np.int64] | None

    @property
    def n_hits(self) -> int:
        return len(self.position)


class TrackBuilder(Protocol):
    """Makes tracks of an event. It decides ties and order by what it is given, so that its tracks
    are the same on any machine, in whatever order the edges are.
    """

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        """Returns each hit's track [N], or NO_TRACK. Tracks have at least `min_hits` hits, and are
        numbered from 0 by their first hit.
        """
        ...


def numbered(group: NDArray[np.int64], min_hits: int) -> NDArray[np.int64]:
    """Makes tracks of groups of hits: any number for each group, or NO_TRACK, [N] -> track [N].

    Groups of fewer than `min_hits` hits are no tracks; the others are numbered from 0, by their
    first hit.
    """
    label, first, row, size = np.unique(
        group, return_index=True, return_inverse=True, return_counts=True
    )
    is_track = (size >= min_hits) & (label != NO_TRACK)
    number = np.full(len(label), NO_TRACK, np.int64)
    by_first_hit = np.argsort(first)
    tracks = by_first_hit[is_track[by_first_hit]]
    number[tracks] = np.arange(len(tracks))
    return number[row]
