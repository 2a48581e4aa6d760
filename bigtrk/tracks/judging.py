"""Tracks of one event from anywhere, judged by the event's truth."""

from collections.abc import Sequence

import numpy as np

from bigtrk.events.event import Event
from bigtrk.events.truth import hit_particles, hit_weights, particle_kinematics
from bigtrk.tracks.evaluation import JudgedTracks
from bigtrk.tracks.hit_tracks import HitTracks
from bigtrk.tracks.matching import Matching, Particles, match_tracks
from bigtrk.tracks.trackml_score import score_if_weighted


def judge_tracks(event: Event, tracks: HitTracks, matchings: Sequence[Matching]) -> JudgedTracks:
    """Judges the tracks that a file lists of an event, in the order of `matchings`, without bins;
    hits that it does not list are in no track.

    Raises:
        InputError: a listed hit is not among the event's, or the event has no truth.
    """
    track_id = tracks.of_hits(event.hits["hit_id"].astype(np.int64, copy=False))
    particle_id = hit_particles(event)
    columns = particle_kinematics(event)
    particles = Particles(
        columns["particle_id"].astype(np.int64, copy=False),
        columns["pt"].astype(np.float64, copy=False),
        columns["nhits"].astype(np.int64, copy=False),
    )
    return JudgedTracks(
        metrics=[
            match_tracks(track_id, particle_id, particles, matching).metrics
            for matching in matchings
        ],
        bins=[None] * len(matchings),
        trackml_score=score_if_weighted(track_id, particle_id, hit_weights(event)),
    )
