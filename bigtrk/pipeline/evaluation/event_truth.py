"""An event's truth, by which the edges that stages leave and the tracks are judged.

Shapes: N hits, E edges, T true edges, C particles that are to be found.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Event
from bigtrk.events.truth import hit_particles
from bigtrk.graphs.builders.assembly import are_true
from bigtrk.graphs.builders.radius import true_pairs
from bigtrk.tracks.builders.builder import NO_TRACK, adjacency, components, numbered
from bigtrk.tracks.evaluation import true_particles
from bigtrk.tracks.matching import Ids, Judgement, Matching, match_tracks

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class StageCounts:
    """Counts of what a stage leaves: edges, those of them that are true, and those of the target
    (true, of particles that are to be found); and particles that can still be found.
    """

    edges: int
    true_edges: int
    target_edges: int
    findable: int


class EventTruth:
    """The true edges of an event, and its particles that are to be found by `matching`.

    true [2, T]: its `true_pairs`. wanted [C]: rows of `particle_kinematics`.
    """

    def __init__(self, event: Event, matching: Matching) -> None:
        """Reads the truth.

        Raises:
            InputError: the event has none.
        """
        self._matching = matching
        self._particle_id = hit_particles(event)
        self._particles = true_particles(event)
        self.true = true_pairs(event)
        # Which particles are to be found does not depend on the tracks.
        self.wanted = self._judged(np.full(len(self._particle_id), NO_TRACK, np.int64)).particle
        self._is_wanted = np.isin(self._particle_id, self._particles.particle_id[self.wanted])

    def found(self, tracks: Ids) -> Mask:
        """Says which of the wanted particles tracks find: [N] -> [C]."""
        return self._judged(tracks).reconstructed

    def found_by_components(self, edges: Ids) -> Mask:
        """Says which of the wanted particles the hits find that edges join: [2, E] -> [C]."""
        joined = adjacency(edges[0], edges[1], len(self._particle_id))
        return self.found(numbered(components(joined), self._matching.min_track_length))

    def are_true(self, edges: Ids) -> Mask:
        """Says which edges are true: [2, E] -> [E]."""
        return are_true(edges, self.true, len(self._particle_id))

    def are_target(self, edges: Ids, are_true: Mask) -> Mask:
        """Says which edges are true ones of wanted particles: [2, E], [E] -> [E]."""
        of_wanted: Mask = are_true & self._is_wanted[edges[0]]
        return of_wanted

    def counts(self, edges: Ids, are_true: Mask, findable: Mask) -> StageCounts:
        """Counts what a stage leaves: edges [2, E], are_true [E], findable [C]."""
        return StageCounts(
            edges=edges.shape[1],
            true_edges=int(are_true.sum()),
            target_edges=int(self.are_target(edges, are_true).sum()),
            findable=int(findable.sum()),
        )

    def _judged(self, tracks: Ids) -> Judgement:
        return match_tracks(tracks, self._particle_id, self._particles, self._matching)
