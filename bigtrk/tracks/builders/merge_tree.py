"""Tracks as the best nodes of the trees of hits, by a learnt quality, each at a cut of its own."""

from dataclasses import dataclass

import numpy as np

from bigtrk.errors import InputError
from bigtrk.tracks.builders.builder import NO_TRACK, ScoredGraph, numbered
from bigtrk.tracks.builders.trees.candidates import Candidates, find_candidates
from bigtrk.tracks.builders.trees.constraints import Ids, Values
from bigtrk.tracks.builders.trees.hit_groups import ranges
from bigtrk.tracks.builders.trees.hit_tree import HitTree, grow
from bigtrk.tracks.builders.trees.quality import Quality


@dataclass(frozen=True)
class MergeTree:
    """Hits are united by edges of falling score, and every union is a candidate for a track. Of all
    sets of candidates without a hit in common that with the largest sum of (P - `threshold`) x hits
    is taken, where P is the candidate's `quality`.

    A higher threshold, between 0 and 1, gives fewer fakes and finds fewer particles. Tracks have at
    least two hits and at most candidates.MOST_HITS. Where modules are unknown, hits of one module
    may be united, too: tracks are worse, and their quality is to be learnt from graphs like these.

    Raises:
        InputError: the threshold is not between 0 and 1.
    """

    quality: Quality
    threshold: float

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise InputError(f"threshold {self.threshold} of track quality: must be from 0 to 1")

    def __call__(self, graph: ScoredGraph, min_hits: int) -> Ids:
        """Returns each hit's track [N], or NO_TRACK (TrackBuilder).

        Raises:
            InputError: the modules of hits are known here and were not in training, or reversely.
        """
        self._check(graph)
        tree = grow(graph)
        candidates = find_candidates(tree, graph.position, min_hits)
        gain = self.quality(candidates.features) - self.threshold
        return take_tracks(tree, candidates, gain, min_hits)

    def _check(self, graph: ScoredGraph) -> None:
        if self.quality.with_modules != (graph.modules is not None):
            known = "unknown" if graph.modules is None else "known"
            raise InputError(
                f"the modules of hits are {known} here, unlike where track quality was learnt; "
                f"train it on graphs like these"
            )


def take_tracks(tree: HitTree, candidates: Candidates, gain: Values, min_hits: int) -> Ids:
    """Takes, of the sets of candidates without a hit in common, that with the largest sum of gain x
    hits: gain [C] -> each hit's track [N], or NO_TRACK.
    """
    values = np.zeros(len(tree.size))
    values[candidates.union] = gain * candidates.hits.size
    group = np.full(len(tree.hits), NO_TRACK, np.int64)
    taken = tree.take_best(values)
    size = tree.size[taken]
    group[tree.hits[ranges(tree.first[taken], size)]] = np.repeat(taken, size)
    return numbered(group, min_hits)
