"""Tracks of files, whoever made them, judged by the truth of their events."""

from pathlib import Path

import numpy as np

from bigtrk.console import complain, follow
from bigtrk.errors import InputError, printable
from bigtrk.events.event import Event
from bigtrk.events.reader import is_colliderml, read_event
from bigtrk.events.truth import hit_particles
from bigtrk.records.evaluation import EventScore, ScoreRecord
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.evaluation import JudgedTracks, judge_tracks, summarise_judged
from bigtrk.tracks.files import HitTracks, events_by_number, nothing_listed, open_tracks
from bigtrk.tracks.matching import Criteria, overlaps
from bigtrk.tracks.names import Task
from bigtrk.training.evaluation.colliderml_score import ColliderMLTask, with_weights
from bigtrk.training.evaluation.track_records import judged_record

CROWD = 100  # particles; a track that has hits of more stands for hits in no track


def score_files(
    tracks: Path,
    events: Path,
    criteria: Criteria,
    task: Task | None = None,
    no_track: int = NO_TRACK,
) -> ScoreRecord:
    """Judges the tracks of `tracks` (see `open_tracks`) by the truth of `events`, a folder or zip
    archive; events without tracks are left out. task: also by its metrics, and then all events
    count: those that the submission leaves out have no tracks. no_track: id of hits in no track,
    beside NO_TRACK. A track with hits of more than `CROWD` particles is said.

    Raises:
        InputError: files are damaged, tracks are of an event or of hits that `events` lacks, list
            a hit twice, or an event has no truth; the message names file, row and remedy.
    """
    source = open_tracks(tracks)
    names = events_by_number(source, events)
    numbers = list(names if task else source.events)
    judged: list[JudgedTracks] = []
    scores: list[EventScore] = []
    crowded: str | None = None
    matchings, public = criteria.matchings(), ColliderMLTask(is_colliderml(events))
    for number in follow(numbers, len(numbers), "score"):
        event = _read_with_truth(events, names[number])
        listed = source.read(number) if number in source.events else nothing_listed(str(tracks))
        listed = listed.without(no_track)
        crowded = crowded or _crowded(event, listed)
        if task:
            event = with_weights(event)
            public.add(event, listed)
        judged.append(judge_tracks(event, listed, matchings))
        record = judged_record(summarise_judged(judged[-1:], matchings))
        hits = len(event.hits["hit_id"])
        scores.append(EventScore(event=event.name, hits=hits, **dict(record)))
    if crowded:
        complain(crowded)
    return ScoreRecord(
        **dict(judged_record(summarise_judged(judged, matchings))),
        tracks=printable(str(tracks.resolve())),
        data=printable(str(events.resolve())),
        min_hits=criteria.min_hits,
        pt_min=criteria.pt_min,
        matching_fraction=criteria.matching_fraction,
        events=tuple(scores),
        events_without_tracks=len(names) - len(source.events),
        colliderml=public.score() if task else None,
    )


def _crowded(event: Event, tracks: HitTracks) -> str | None:
    """Says which track has hits of so many particles that it is none, and what helps."""
    track_id = tracks.of_hits(event.hits["hit_id"].astype(np.int64, copy=False))
    found, particles = np.unique(
        overlaps(track_id, hit_particles(event)).track_id, return_counts=True
    )
    if particles.max(initial=0) <= CROWD:
        return None
    most = int(particles.argmax())
    return (
        f"{tracks.file}: track {found[most]} of {event.name} has hits of {particles[most]:,} "
        f"particles and counts as a track; if it means hits in no track, add "
        f"--no-track {found[most]}"
    )


def _read_with_truth(events: Path, name: str) -> Event:
    event = read_event(events, name)
    if event.truth is None:
        raise InputError(
            f"{events}: {name} has no truth, by which its tracks could be judged; add "
            f"{name}-truth.csv, or particle_id to ColliderML's hits, or leave its tracks out"
        )
    return event
