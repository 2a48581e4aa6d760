"""The four metrics of ColliderML's tracking task, as that package (0.4) defines them.

What they do not punish is in docs/colliderml.md; `bigtrk.tracks.matching` has strict ones. Shapes:
M listed hits, N hits of an event, K pairs of a track and a particle that share hits, T tracks, P
particles.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Event
from bigtrk.events.truth import hit_particles, hit_weights
from bigtrk.tracks.files import HitTracks
from bigtrk.tracks.matching import Ids

Floats = NDArray[np.float64]
PT_MIN = 1.0  # GeV


@dataclass(frozen=True)
class ColliderMLCounts:
    """Counts of one event's submitted hits or, added up, of several events'; ids that several have
    count once.

    correct, submitted: weight of the hits in correct tracks, and of all listed. n_shared: particles
    with hits in several tracks, of the n_particles with listed hits. hard, claimed: ids of primary
    particles above PT_MIN, and of those that the submission names, ascending.
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

    @property
    def trackml_eff(self) -> float:
        """Returns the weight in correct tracks over that of all listed hits."""
        return _share(self.correct, self.submitted)

    @property
    def fake_rate(self) -> float:
        """Returns the share of tracks of which no particle made half."""
        return _share(self.n_fakes, self.n_tracks)

    @property
    def dup_rate(self) -> float:
        """Returns the share of particles with hits in several tracks."""
        return _share(self.n_shared, self.n_particles)

    @property
    def physics_eff_pt1(self) -> float:
        """Returns the share of hard primary particles that the submission names: ids of all events
        are one set, as the package has it.
        """
        return _share(int(np.isin(self.hard, self.claimed).sum()), len(self.hard))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


NOTHING = ColliderMLCounts(0.0, 0.0, 0, 0, 0, 0, np.empty(0, np.int64), np.empty(0, np.int64))


def count_submitted(event: Event, tracks: HitTracks) -> ColliderMLCounts:
    """Counts the hits that a submission lists of an event, in its order; track -1 is a track like
    any other, a hit listed twice counts twice, and one that the event lacks not at all. Hits weigh
    the same where the truth gives no weights.

    Raises:
        InputError: the event has no truth.
    """
    particle_id, weight = hit_particles(event), hit_weights(event)
    if weight is None:
        weight = np.ones(len(particle_id))
    hit_id = event.hits["hit_id"].astype(np.int64, copy=False)
    known, order = np.isin(tracks.hit_id, hit_id), np.argsort(hit_id)
    row = order[np.searchsorted(hit_id[order], tracks.hit_id[known])]
    pairs = _pairs(tracks.track_id[known], row, particle_id, weight)
    tracks_of_particle = np.bincount(pairs.particle)
    most_hits = np.zeros(len(pairs.track_hits), np.int64)  # that a track shares with one particle
    np.maximum.at(most_hits, pairs.track, pairs.hits)
    return ColliderMLCounts(
        correct=_correct_weight(pairs),
        submitted=float(pairs.track_weight.sum()),
        n_fakes=int((2 * most_hits < pairs.track_hits).sum()),
        n_tracks=len(pairs.track_hits),
        n_shared=int((tracks_of_particle > 1).sum()),
        n_particles=int((tracks_of_particle > 0).sum()),
        hard=_hard_primaries(event),
        claimed=np.empty(0, np.int64) if tracks.claimed is None else np.unique(tracks.claimed),
    )


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a track and a particle that share hits, by track.

    track, particle [K]: their numbers; hits, weight [K]: what they share; first [K]: where the
    submission lists the first. track_hits, track_weight [T]; particle_weight [P]: of all its hits.
    """

    track: Ids
    particle: Ids
    hits: Ids
    weight: Floats
    first: Ids
    track_hits: Ids
    track_weight: Floats
    particle_weight: Floats


def _pairs(track_id: Ids, row: Ids, particle_id: Ids, weight: Floats) -> _Pairs:
    """Pairs tracks and particles: track_id, row [M]; particle_id, weight [N]."""
    particles, particle = np.unique(particle_id, return_inverse=True)
    tracks, track = np.unique(track_id, return_inverse=True)
    keys, first, pair, hits = np.unique(
        track * len(particles) + particle[row],
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    pair_track, pair_particle = np.divmod(keys, max(len(particles), 1))
    return _Pairs(
        pair_track,
        pair_particle,
        hits,
        _sums(pair, weight[row], len(keys)),
        first,
        np.bincount(track, minlength=len(tracks)),
        _sums(track, weight[row], len(tracks)),
        _sums(particle, weight, len(particles)),
    )


def _sums(group: Ids, weight: Floats, groups: int) -> Floats:
    return np.bincount(group, weight, minlength=groups).astype(np.float64)


def _correct_weight(pairs: _Pairs) -> float:
    """Adds up what correct tracks share with the particle of most weight in them: at least half of
    both. Of several with as much weight the first listed counts, as the package has it.
    """
    order = np.lexsort((pairs.first, -pairs.weight, pairs.track))
    majority = order[np.unique(pairs.track[order], return_index=True)[1]]
    shared, particle = pairs.weight[majority], pairs.particle[majority]
    correct = (2 * shared >= pairs.track_weight) & (2 * shared >= pairs.particle_weight[particle])
    return float(shared[correct].sum())


def _hard_primaries(event: Event) -> Ids:
    """Lists the particles above PT_MIN, of primary ones where the event tells them."""
    if event.particles is None:
        return np.empty(0, np.int64)
    px, py = (event.particles[name].astype(np.float64) for name in ("px", "py"))
    chosen = np.sqrt(px * px + py * py) > PT_MIN
    if "primary" in event.particles:
        chosen &= event.particles["primary"].astype(bool)
    return np.unique(event.particles["particle_id"][chosen].astype(np.int64))
