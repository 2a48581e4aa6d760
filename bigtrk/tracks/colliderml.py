"""Computes the four metrics of ColliderML's tracking task, as that package (0.4) defines them.

What they do not punish is in docs/colliderml.md; `bigtrk.tracks.matching` has strict ones. Shapes:
M listed hits, N hits of an event.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigtrk.events.event import Event
from bigtrk.events.truth import hit_particles, hit_weights, rows_of
from bigtrk.records.evaluation import ColliderMLMetrics
from bigtrk.tracks.builders.builder import best_at
from bigtrk.tracks.files import HitTracks
from bigtrk.tracks.matching import Ids, overlaps

PT_MIN = 1.0  # GeV


@dataclass(frozen=True)
class ColliderMLCounts:
    """Counts of one event's submitted hits, or sums over events, in which an id counts once.

    correct: weight of the majority particle's hits in correct tracks; submitted: of all listed
    hits. n_shared: particles with hits in several tracks, of the n_particles with listed hits.
    hard: ids of primary particles above PT_MIN, ascending; claimed: ids that the submission names.
    """

    correct: float
    submitted: float
    n_fakes: int
    n_tracks: int
    n_shared: int
    n_particles: int
    hard: Ids
    claimed: Ids

    def __add__(self, other: "ColliderMLCounts") -> "ColliderMLCounts":
        added: dict[str, Any] = {}
        for name, one in vars(self).items():
            two = getattr(other, name)
            added[name] = np.union1d(one, two) if isinstance(one, np.ndarray) else one + two
        return ColliderMLCounts(**added)

    def metrics(self) -> ColliderMLMetrics:
        """Returns the metrics; 0 where nothing is counted. trackml_eff: correct over submitted
        weight. fake_rate: share of tracks of which no particle made half. dup_rate: share of
        particles with hits in several tracks. physics_eff_pt1: share of hard primary particles that
        the submission names; ids of all events are one set, as in the package.
        """
        named = int(np.isin(self.hard, self.claimed).sum())
        shares = {
            "trackml_eff": (self.correct, self.submitted),
            "fake_rate": (self.n_fakes, self.n_tracks),
            "dup_rate": (self.n_shared, self.n_particles),
            "physics_eff_pt1": (named, len(self.hard)),
        }
        return ColliderMLMetrics(
            **{name: part / whole if whole else 0.0 for name, (part, whole) in shares.items()}
        )


NOTHING = ColliderMLCounts(0.0, 0.0, 0, 0, 0, 0, np.empty(0, np.int64), np.empty(0, np.int64))


def count_submitted(event: Event, tracks: HitTracks) -> ColliderMLCounts:
    """Counts the hits of an event that a submission lists, in its order. Track -1 is a track like
    any other; a hit listed twice counts twice, and one that the event lacks does not count. All
    hits weigh the same if the truth has no weights. InputError without truth.
    """
    particle_id, weight = hit_particles(event), hit_weights(event)
    if weight is None:
        weight = np.ones(len(particle_id))
    row = rows_of(tracks.hit_id, event.hits["hit_id"].astype(np.int64, copy=False))
    known = row >= 0
    row = row[known]
    # Renumbered from 0, so that track -1 counts like the others.
    numbers, track = np.unique(tracks.track_id[known], return_inverse=True)
    pairs = overlaps(track, particle_id[row])
    most_hits = np.zeros(len(numbers), np.int64)  # that a track shares with one particle
    np.maximum.at(most_hits, pairs.track_id, pairs.shared)
    tracks_of_particle = np.unique(pairs.particle_id, return_counts=True)[1]
    track_weight = np.bincount(track, weight[row], len(numbers))
    # Of several particles with equal weight the first listed one counts, as in the package.
    shared = np.bincount(pairs.row_of_hit, weight[row], len(pairs.shared))
    first = np.unique(pairs.row_of_hit, return_index=True)[1]
    majority = np.flatnonzero(best_at(pairs.track_id, first, shared))
    particles, particle = np.unique(particle_id, return_inverse=True)
    place = np.searchsorted(particles, pairs.particle_id[majority])
    half = np.maximum(track_weight, np.bincount(particle, weight)[place]) / 2
    correct = shared[majority] >= half
    return ColliderMLCounts(
        correct=float(shared[majority][correct].sum()),
        submitted=float(track_weight.sum()),
        n_fakes=int((2 * most_hits < np.bincount(track, minlength=len(numbers))).sum()),
        n_tracks=len(numbers),
        n_shared=int((tracks_of_particle > 1).sum()),
        n_particles=len(tracks_of_particle),
        hard=_hard_primaries(event),
        claimed=np.empty(0, np.int64) if tracks.claimed is None else np.unique(tracks.claimed),
    )


def _hard_primaries(event: Event) -> Ids:
    """Lists the ids of particles above PT_MIN; only primary ones if the event marks these."""
    if event.particles is None:
        return np.empty(0, np.int64)
    px, py = (event.particles[name].astype(np.float64) for name in ("px", "py"))
    chosen = np.sqrt(px * px + py * py) > PT_MIN
    if "primary" in event.particles:
        chosen &= event.particles["primary"].astype(bool)
    return np.unique(event.particles["particle_id"][chosen].astype(np.int64))
