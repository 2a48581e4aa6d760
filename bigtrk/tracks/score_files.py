"""Judges tracks read from files, also by TrackML's and ColliderML's scores."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from bigtrk.console import complain, follow
from bigtrk.errors import InputError, printable
from bigtrk.events.colliderml_reader import particle_numbers
from bigtrk.events.event import Event, EventFormat
from bigtrk.events.reader import format_of, read_event
from bigtrk.events.truth import hit_particles, hit_weights
from bigtrk.records.evaluation import ColliderMLScore, EventScore, RuleScore, ScoreRecord
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.colliderml import NOTHING, count_submitted
from bigtrk.tracks.evaluation import JudgedTracks, judge_hits, summarise_judged
from bigtrk.tracks.files import HitTracks, events_by_number, open_tracks
from bigtrk.tracks.fits import FitErrors, fit_errors, parameters_path, score_fits
from bigtrk.tracks.matching import Criteria, Ids, overlaps
from bigtrk.tracks.names import Rules, Task
from bigtrk.tracks.rules import RULES, RuleCounts

CROWD = 100  # particles; a track with hits of more probably stands for hits in no track


def score_files(
    tracks: Path,
    events: Path,
    criteria: Criteria,
    task: Task | None = None,
    no_track: int = NO_TRACK,
    rules: Rules | None = None,
) -> ScoreRecord:
    """Judges the tracks in `tracks` (see `open_tracks`) by the truth of `events`, a folder or zip
    archive. Events without tracks are left out, unless a `task` is given, whose metrics are then
    added. no_track: id of hits in no track, besides NO_TRACK. rules: adds the rules of published
    figures. Fits in the folder of the tracks are judged, too. Raises InputError if files are
    damaged, tracks are of an event or of hits that `events` lacks, list a hit twice, or an event
    has no truth.
    """
    source = open_tracks(tracks)
    names = events_by_number(source, events)
    numbers = list(names if task else source.events)
    judged: list[JudgedTracks] = []
    scores: list[EventScore] = []
    crowded: str | None = None
    nothing = np.empty(0, np.int64)
    matchings = criteria.matchings()
    # ColliderML's samples number particles from 0, as its submissions do.
    by_place = format_of(events) == EventFormat.COLLIDERML
    submitted = in_tracks = NOTHING
    fits: list[FitErrors] = []
    by_rule = {rule: RuleCounts() for rule in RULES if rules}
    for number in follow(numbers, len(numbers), "score"):
        event = _with_truth(events, names[number])
        assert event.truth is not None
        listed = HitTracks(nothing, nothing, str(tracks), nothing)
        if number in source.events:
            listed = source.read(number).without(no_track)
        track_id = listed.of_hits(event.hits["hit_id"].astype(np.int64, copy=False))
        crowded = crowded or _crowded(event, track_id, listed.file)
        if task:
            if hit_weights(event) is None:  # then all hits weigh the same
                weight = np.ones(len(event.truth["hit_id"]))
                event = replace(event, truth=event.truth | {"weight": weight})
            if by_place and listed.claimed is not None:
                listed = replace(listed, claimed=particle_numbers(listed.claimed))
            submitted += count_submitted(event, listed)
            in_tracks += count_submitted(event, listed.in_tracks())
        for rule in by_rule:
            by_rule[rule] += rule.count(event, track_id)
        if (fitted := parameters_path(tracks, event.name)).exists():
            fits.append(fit_errors(event, track_id, fitted))
        judged.append(judge_hits(event, track_id, matchings))
        record, hits = summarise_judged(judged[-1:], matchings), len(track_id)
        scores.append(EventScore(event=event.name, hits=hits, **dict(record)))
    if crowded:
        complain(crowded)
    public = ColliderMLScore(submitted=submitted.metrics(), in_tracks=in_tracks.metrics())
    return ScoreRecord(
        **dict(summarise_judged(judged, matchings)),
        tracks=printable(str(tracks.resolve())),
        data=printable(str(events.resolve())),
        **asdict(criteria),
        events=tuple(scores),
        events_without_tracks=len(names) - len(source.events),
        colliderml=public if task else None,
        rules=tuple(
            RuleScore(rule=x.name, targets=x.targets, counted_tracks=x.tracks, **asdict(counts))
            for x, counts in by_rule.items()
        ),
        fits=score_fits(fits),
    )


def _with_truth(events: Path, name: str) -> Event:
    event = read_event(events, name)
    if event.truth is None:
        raise InputError(
            f"{events}: {event.name} has no truth, so its tracks cannot be judged; add "
            f"{event.name}-truth.csv, or particle_id to ColliderML's hits, or leave its tracks out"
        )
    return event


def _crowded(event: Event, track_id: Ids, file: str) -> str | None:
    """Returns a warning if a track has hits of over CROWD particles, else None."""
    shared = overlaps(track_id, hit_particles(event)).track_id
    found, particles = np.unique(shared, return_counts=True)
    if particles.max(initial=0) <= CROWD:
        return None
    most = int(particles.argmax())
    return (
        f"{file}: track {found[most]} of {event.name} has hits of {particles[most]:,} "
        f"particles and counts as a track; if it means hits in no track, add "
        f"--no-track {found[most]}"
    )
