"""An event with truth, as the quality of tracks is taught and its threshold chosen on it.

Shapes: N hits, C candidates.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.trees.candidates import Candidates, are_good, find_candidates
from bigtrk.tracks.builders.trees.constraints import Ids
from bigtrk.tracks.builders.trees.hit_tree import HitTree, grow

MIN_HITS = 3  # of a track that is judged


@dataclass(frozen=True)
class KnownEvent:
    """An event's tree of hits, its candidates for tracks of MIN_HITS or more hits, and the particle
    of each hit [N] (0: noise). with_modules: whether the modules of hits are known.

    It takes about 200 bytes per hit.
    """

    tree: HitTree
    candidates: Candidates
    particle_id: Ids
    with_modules: bool

    def good(self) -> NDArray[np.bool_]:
        """Says of each candidate whether it is a good track (`are_good`): [C]."""
        return are_good(self.candidates.hits, self.particle_id)


def known_event(graph: ScoredGraph, particle_id: Ids) -> KnownEvent:
    """Grows the tree of a scored graph, and lists its candidates: particle_id [N] (0: noise)."""
    tree = grow(graph)
    candidates = find_candidates(tree, graph.position, MIN_HITS)
    return KnownEvent(tree, candidates, particle_id, graph.modules is not None)
