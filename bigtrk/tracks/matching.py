"""Matches tracks to particles: efficiency, fake rate and duplicate rate; the TrackML score.

The definitions are those of GNN4ITk acorn's track building. Shapes: N hits, P particles, R pairs of
a track and a particle that share hits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.events.event import NOISE
from bigtrk.events.truth import rows_of
from bigtrk.tracks.builders.builder import NO_TRACK

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Overlaps:
    """One row per pair of a track and a particle that share hits; R rows, M hits in tracks.

    track_id, particle_id [R]; shared [R]: number of hits in both; track_hits, particle_hits [R]:
    number of all hits of each; hits [M]: indices of the hits in tracks, row_of_hit [M]: their rows.
    """

    track_id: Ids
    particle_id: Ids
    shared: Ids
    track_hits: Ids
    particle_hits: Ids
    hits: Ids
    row_of_hit: Ids

    @property
    def is_pure(self) -> Mask:
        """Marks the rows whose particle made more than half of the track's hits, [R]."""
        return 2 * self.shared > self.track_hits

    @property
    def is_double(self) -> Mask:
        """Marks the pure rows whose track also has more than half of the particle's hits, [R]."""
        return self.is_pure & (2 * self.shared > self.particle_hits)


def overlaps(track_id: Ids, particle_id: Ids) -> Overlaps:
    """Counts hits that tracks and particles share. track_id (NO_TRACK: none), particle_id [N]."""
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


Style = Literal["ATLAS", "one_way", "two_way"]
Mode = Literal["acorn", "strict"]


@dataclass(frozen=True)
class Particles:
    """Particles: particle_id [P] int64, pt [P] (GeV), nhits [P] int64 (all hits in the event)."""

    particle_id: Ids
    pt: NDArray[np.floating]
    nhits: Ids


@dataclass(frozen=True)
class Matching:
    """Defines when a track matches a particle, and which tracks and particles count.

    style: ATLAS matches a track and a particle if the particle has made at least
    `matching_fraction` of the track's hits. two_way also asks for that fraction of the particle's
    hits in the track. one_way judges tracks by the former alone and particles by the latter alone.

    mode: `acorn` is as in acorn: noise matches tracks like a particle, and only the given hits are
    known. `strict`: noise never matches, and particles have all their hits of the event, so that
    hits lost before tracks were built count.

    Tracks have at least `min_track_length` hits, reconstructable particles at least `pt_min` (GeV)
    and `hits_min` hits; an unknown pT satisfies no `pt_min` above 0.
    """

    style: Style = "ATLAS"
    mode: Mode = "strict"
    matching_fraction: float = 0.5
    pt_min: float = 0.0
    min_track_length: int = 3
    hits_min: int = 1


@dataclass(frozen=True)
class Criteria:
    """The tracks and particles that count in all styles and modes: tracks of `min_hits` or more
    hits; particles of `min_hits` or more hits and `pt_min` (GeV) or more are to be found.
    """

    min_hits: int = 3
    pt_min: float = 1.0
    matching_fraction: float = 0.5

    def __post_init__(self) -> None:
        for name in ("pt_min", "matching_fraction"):
            if not math.isfinite(value := getattr(self, name)):
                raise InputError(f"{name}={value}: must be a finite number")

    def matchings(self) -> list[Matching]:
        """Returns a Matching for every style in every mode."""
        return [
            Matching(style, mode, self.matching_fraction, self.pt_min, self.min_hits, self.min_hits)
            for style, mode in product(get_args(Style), get_args(Mode))
        ]


@dataclass(frozen=True)
class TrackMetrics:
    """Counts of one event or, summed by `pooled`, of several; rates are None where undefined."""

    n_particles: int
    n_reconstructed: int
    n_duplicates: int
    n_tracks: int
    n_matched: int

    @property
    def efficiency(self) -> float | None:
        """Returns the fraction of reconstructable particles that are reconstructed."""
        return self.n_reconstructed / self.n_particles if self.n_particles else None

    @property
    def fake_rate(self) -> float | None:
        """Returns the share of tracks that match no particle."""
        return 1 - self.n_matched / self.n_tracks if self.n_tracks else None

    @property
    def duplicate_rate(self) -> float | None:
        """Returns the number of extra tracks (beyond the first) per reconstructed particle."""
        return self.n_duplicates / self.n_reconstructed if self.n_reconstructed else None


@dataclass(frozen=True)
class Judgement:
    """One event's matching of C reconstructable particles and T tracks.

    particle [C]: rows of the particle table; n_tracks [C]: number of tracks that reconstruct each.
    track_id [T], ascending; matched [T]: whether the track matches a particle.
    """

    particle: Ids
    n_tracks: Ids
    track_id: Ids
    matched: Mask

    @property
    def reconstructed(self) -> Mask:
        """Marks the particles that are reconstructed, [C]."""
        return self.n_tracks > 0

    @property
    def metrics(self) -> TrackMetrics:
        """Returns the counts of the event's tracks and particles."""
        n_reconstructed = int(self.reconstructed.sum())
        return TrackMetrics(
            n_particles=len(self.particle),
            n_reconstructed=n_reconstructed,
            n_duplicates=int(self.n_tracks.sum()) - n_reconstructed,
            n_tracks=len(self.track_id),
            n_matched=int(self.matched.sum()),
        )


def match_tracks(
    track_id: Ids, particle_id: Ids, particles: Particles, matching: Matching
) -> Judgement:
    """Matches one event's tracks: track_id [N] (-1: in no track), particle_id [N] (0: noise)."""
    nhits = particles.nhits
    if matching.mode == "acorn":
        seen, counts = np.unique(particle_id, return_counts=True)
        nhits = np.append(counts, 0)[rows_of(particles.particle_id, seen)]
    chosen = (nhits >= max(matching.hits_min, 1)) & (particles.particle_id != NOISE)
    if matching.pt_min > 0:
        chosen &= particles.pt >= matching.pt_min
    candidates = np.flatnonzero(chosen)
    rows = overlaps(track_id, particle_id)
    # For a particle that the table lacks, the hits seen are counted.
    listed = np.append(nhits, 0)[rows_of(rows.particle_id, particles.particle_id)]
    true_hits = np.maximum(rows.particle_hits, listed)
    matched, reconstructed = _matches(rows, true_hits, matching)
    long = rows.track_hits >= matching.min_track_length
    found, times = np.unique(rows.particle_id[reconstructed & long], return_counts=True)
    tracks = np.unique(rows.track_id[long])
    return Judgement(
        particle=candidates,
        n_tracks=np.append(times, 0)[rows_of(particles.particle_id[candidates], found)],
        track_id=tracks,
        matched=np.isin(tracks, rows.track_id[long & matched]),
    )


def pooled(events: Sequence[TrackMetrics]) -> TrackMetrics:
    """Sums the counts of several events; rates then follow from the sums, as in acorn."""
    names = [field.name for field in fields(TrackMetrics)]
    return TrackMetrics(*(sum(getattr(event, name) for event in events) for name in names))


def _matches(rows: Overlaps, true_hits: Ids, matching: Matching) -> tuple[Mask, Mask]:
    """Marks rows whose track matches, and rows whose particle is reconstructed: [R], [R]."""
    fraction = matching.matching_fraction
    # A fraction of 0.5 means more than half, so that no track matches two particles.
    fraction += 1e-6 if fraction == 0.5 else 0
    pure = rows.shared / rows.track_hits >= fraction
    complete = rows.shared / true_hits >= fraction
    if matching.mode == "strict":
        pure &= rows.particle_id != NOISE
    match matching.style:
        case "ATLAS":
            return pure, pure
        case "one_way":
            return pure, complete
        case "two_way":
            return pure & complete, pure & complete


def trackml_score(
    track_id: Ids, particle_id: Ids, weight: NDArray[np.floating] | None
) -> float | None:
    """Returns the TrackML score: the weight of well-found hits over the weight of all, in [0, 1].
    None without weights, if one is unknown (as in files of the test set), or if all are 0 (an event
    that has only short particles).

    track_id [N] (-1: in no track), particle_id [N] (0: noise), weight [N]: all hits of the event,
    also those that track building never saw. A hit is well found if its particle made more than
    half of its track and has more than half of its hits there.
    """
    if weight is None or not np.isfinite(weight).all() or weight.sum() <= 0:
        return None
    rows = overlaps(track_id, particle_id)
    well_found = rows.is_double & (rows.particle_id != NOISE)
    counted = rows.hits[well_found[rows.row_of_hit]]
    return float(weight[counted].sum(dtype=np.float64) / weight.sum(dtype=np.float64))


def majority_particles(track_id: Ids, particle_id: Ids) -> Ids:
    """Returns, for each hit, the particle that made more than half of the hits of its track; NOISE
    if there is none or the hit is in no track: track_id, particle_id [N] -> [N].
    """
    rows = overlaps(track_id, particle_id)
    most = rows.is_pure & (rows.particle_id != NOISE)
    tracks, particles = rows.track_id[most], rows.particle_id[most]
    named = np.full(len(track_id), NOISE, np.int64)
    hits = np.isin(track_id, tracks)
    named[hits] = particles[np.searchsorted(tracks, track_id[hits])]
    return named
