"""Tracks of one event from anywhere, judged by the event's truth.

Shapes: N hits.
"""

from collections.abc import Sequence

import numpy as np

from bigtrk.events.event import Event
from bigtrk.events.truth import hit_particles, hit_weights, particle_kinematics
from bigtrk.tracks.evaluation import JudgedTracks
from bigtrk.tracks.matching import Matching, Particles, match_tracks
from bigtrk.tracks.overlaps import Ids
from bigtrk.tracks.public_scores.trackml_score import score_if_weighted
from bigtrk.tracks.storage.hit_tracks import HitTracks


def judge_tracks(event: Event, tracks: HitTracks, matchings: Sequence[Matching]) -> JudgedTracks:
    """Judges the tracks that a file lists of an event, in the order of `matchings`, without bins;
    hits that it does not list are in no track.

    Raises:
        InputError: a listed hit is not among the event's, or the event has no truth.
    """
    track_id = tracks.of_hits(event.hits["hit_id"].astype(np.int64, copy=False))
    return judge_hits(event, track_id, matchings)


def judge_hits(event: Event, track_id: Ids, matchings: Sequence[Matching]) -> JudgedTracks:
    """Judges tracks given as that of each hit, or NO_TRACK: track_id [N].

    Raises:
        InputError: the event has no truth.
    """
    particle_id, particles = hit_particles(event), true_particles(event)
    return JudgedTracks(
        metrics=[
            match_tracks(track_id, particle_id, particles, matching).metrics
            for matching in matchings
        ],
        bins=[None] * len(matchings),
        trackml_score=score_if_weighted(track_id, particle_id, hit_weights(event)),
    )


def true_particles(event: Event) -> Particles:
    """Returns the particles by which tracks are matched, in the order of `particle_kinematics`.

    Raises:
        InputError: the event has no truth.
    """
    columns = particle_kinematics(event)
    return Particles(
        columns["particle_id"].astype(np.int64, copy=False),
        columns["pt"].astype(np.float64, copy=False),
        columns["nhits"].astype(np.int64, copy=False),
    )
