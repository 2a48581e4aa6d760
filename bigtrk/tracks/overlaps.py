"""The number of hits that each track shares with each particle."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import NO_TRACK

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Overlaps:
    """One row per pair of a track and a particle that share hits; R rows, M hits in tracks.

    track_id, particle_id [R]; shared [R]: hits in both; track_hits, particle_hits [R]: hits of
    each, in tracks or not; row_of_hit [M] and hits [M]: row and position of the hits in tracks.
    """

    track_id: Ids
    particle_id: Ids
    shared: Ids
    track_hits: Ids
    particle_hits: Ids
    hits: Ids
    row_of_hit: Ids


def overlaps(track_id: Ids, particle_id: Ids) -> Overlaps:
    """Counts shared hits: track_id, particle_id [N]; hits in no track count to their particle."""
    hits = np.flatnonzero(track_id != NO_TRACK)
    tracks, track = np.unique(track_id[hits], return_inverse=True)
    particles, particle, particle_hits = np.unique(
        particle_id, return_inverse=True, return_counts=True
    )
    key = track * len(particles) + particle[hits]
    pairs, row_of_hit, shared = np.unique(key, return_inverse=True, return_counts=True)
    row_track, row_particle = np.divmod(pairs, max(len(particles), 1))
    return Overlaps(
        track_id=tracks[row_track],
        particle_id=particles[row_particle],
        shared=shared,
        track_hits=np.bincount(track, minlength=len(tracks))[row_track],
        particle_hits=particle_hits[row_particle],
        hits=hits,
        row_of_hit=row_of_hit,
    )
