"""Efficiency and fake rate by the rules behind published figures, which differ by several points.

Each rule defines which hits are given, which particles are to be found, and which tracks are fake.
Shapes: N hits.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from operator import add

import numpy as np

from bigtrk.events.event import NOISE, Event
from bigtrk.events.truth import hit_particles, hit_weights, particle_kinematics
from bigtrk.tracks.builders.builder import NO_TRACK, best_at
from bigtrk.tracks.colliderml import count_submitted
from bigtrk.tracks.evaluation import true_particles
from bigtrk.tracks.files import HitTracks
from bigtrk.tracks.matching import (
    Ids,
    Mask,
    Matching,
    Overlaps,
    match_tracks,
    overlaps,
    trackml_score,
)

# TrackML's pixels: volume -> layers.
PIXELS = {8: (2, 4, 6, 8)} | dict.fromkeys((7, 9), (2, 4, 6, 8, 10, 12, 14))


@dataclass(frozen=True)
class RuleCounts:
    """Counts of events by one rule. particles: number to be found, or weight of hits to be found;
    found: the part that was found. tracks: number that the rule counts; fakes: fake ones of these.
    """

    particles: float = 0
    found: float = 0
    tracks: int = 0
    fakes: int = 0

    def __add__(self, other: "RuleCounts") -> "RuleCounts":
        return RuleCounts(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Rule:
    """A published rule. targets, tracks: describe the particles to find and tracks that count."""

    name: str
    targets: str
    tracks: str
    count: Callable[[Event, Ids], RuleCounts]


def in_pixels(event: Event) -> Mask:
    """Marks the hits in TrackML's pixels, [N]."""
    volume, layer = event.hits["volume_id"], event.hits["layer_id"]
    masks = [(volume == number) & np.isin(layer, layers) for number, layers in PIXELS.items()]
    found: Mask = np.logical_or.reduce(masks)
    return found


def _count_heptv2(event: Event, track_id: Ids) -> RuleCounts:
    """Source: Graph-COM/HEPTv2, heptv2/eval/metrics.py (double_majority, fake_rate)."""
    radius = np.hypot(event.hits["x"].astype(float), event.hits["y"].astype(float))
    with np.errstate(divide="ignore"):
        eta = np.arcsinh(event.hits["z"].astype(float) / radius)
    given = in_pixels(event) & (np.abs(eta) <= 4)
    particle = hit_particles(event)
    pixels = np.flatnonzero(in_pixels(event) & (particle != NOISE))
    place = np.stack([particle[pixels], event.hits["volume_id"][pixels] * 100])
    place[1] += event.hits["layer_id"][pixels]
    crossed, layers = np.unique(np.unique(place, axis=1)[0], return_counts=True)
    table = particle_kinematics(event)
    hard = table["particle_id"][table["pt"].astype(float) >= 0.9]
    targets = np.intersect1d(np.intersect1d(crossed[layers >= 3], hard), particle[given])
    pairs = overlaps(track_id[given], particle[given])
    counted = _is_majority(pairs) & np.isin(pairs.particle_id, targets) & (pairs.track_hits >= 3)
    return RuleCounts(
        len(targets),
        len(np.unique(pairs.particle_id[counted & pairs.is_double])),
        int(counted.sum()),
        int((counted & ~pairs.is_pure).sum()),
    )


def _count_hepattn(event: Event, track_id: Ids, pt_min: float, eta_max: float) -> RuleCounts:
    """Source: samvanstroud/hepattn, experiments/trackml/eval/track_evaluate.py (eff_dm)."""
    given = in_pixels(event)
    particle, table = hit_particles(event)[given], particle_kinematics(event)
    seen, hits = np.unique(particle[particle != NOISE], return_counts=True)
    is_central = np.abs(table["eta"].astype(float)) < eta_max
    chosen = table["particle_id"][is_central & (table["pt"].astype(float) > pt_min)]
    targets = np.intersect1d(seen[hits >= 3], chosen)
    pairs = overlaps(track_id[given], particle)
    is_track = _is_majority(pairs) & (pairs.track_hits >= 3)
    is_match = pairs.is_double & (pairs.particle_id != NOISE)
    return RuleCounts(
        len(targets),
        len(np.intersect1d(pairs.particle_id[is_track & is_match], targets)),
        int(is_track.sum()),
        int((is_track & ~is_match).sum()),
    )


def _count_acorn(event: Event, track_id: Ids) -> RuleCounts:
    """Source: GNN4ITk's acorn, whose matching `Matching` describes."""
    rule = Matching("ATLAS", "acorn", pt_min=1.0, hits_min=3)
    found = match_tracks(track_id, hit_particles(event), true_particles(event), rule).metrics
    fakes = found.n_tracks - found.n_matched
    return RuleCounts(found.n_particles, found.n_reconstructed, found.n_tracks, fakes)


def _count_colliderml(event: Event, track_id: Ids) -> RuleCounts:
    """Source: OpenDataDetector/ColliderML 0.4, tasks/tracking/metrics.py (trackml_eff)."""
    hit_id, in_track = event.hits["hit_id"].astype(np.int64), track_id != NO_TRACK
    listed = HitTracks(hit_id[in_track], track_id[in_track], "", np.flatnonzero(in_track))
    found = count_submitted(event, listed)
    return RuleCounts(found.submitted, found.correct, found.n_tracks, found.n_fakes)


def _count_trackml(event: Event, track_id: Ids) -> RuleCounts:
    """Source: LAL/trackml-library, score.py; nothing counts where the truth gives no weights."""
    score = trackml_score(track_id, hit_particles(event), hit_weights(event))
    return RuleCounts() if score is None else RuleCounts(1.0, score)


RULES = (
    Rule(
        "acorn",
        "pT at least 1 GeV, 3 hits that were given",
        "all of 3 hits; noise matches like a particle, and most of a track makes a match",
        _count_acorn,
    ),
    Rule(
        "ColliderML",
        "hits in tracks, by weight, or equally without",
        "all; fakes are less than half pure",
        _count_colliderml,
    ),
    Rule("TrackML", "all hits, by weight, as means of events", "none", _count_trackml),
    Rule(
        "HEPTv2",
        "pixels: pT at least 0.9 GeV, 3 layers",
        "those whose majority is such a particle; fakes are at most half pure",
        _count_heptv2,
    ),
    Rule(
        "hepattn 600 MeV",
        "pixels: pT above 0.6 GeV, |eta| below 2.5, 3 hits",
        "all of 3 pixel hits; fakes have no double majority",
        partial(_count_hepattn, pt_min=0.6, eta_max=2.5),
    ),
    Rule(
        "hepattn 900 MeV",
        "pixels: pT above 0.9 GeV, |eta| below 4, 3 hits",
        "all of 3 pixel hits; fakes have no double majority",
        partial(_count_hepattn, pt_min=0.9, eta_max=4.0),
    ),
)


def _is_majority(pairs: Overlaps) -> Mask:
    """Marks, for each track, the row of the particle with most hits in it, [R]. Ties go to the
    smallest id; HEPTv2's own code leaves them to an unstable sort.
    """
    return best_at(pairs.track_id, pairs.particle_id, pairs.shared)
