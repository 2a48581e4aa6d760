"""Tracks of files, whoever made them, judged by the truth of events."""

from pathlib import Path

from bigtrk.console import follow
from bigtrk.errors import InputError, printable
from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.records.score import EventScore, ScoreRecord
from bigtrk.tracks.evaluation import JudgedTracks
from bigtrk.tracks.files import TrackSource, event_number, open_tracks
from bigtrk.tracks.judging import judge_tracks
from bigtrk.tracks.matching import Criteria
from bigtrk.tracks.summary import summarise_judged
from bigtrk.training.evaluation.track_records import judged_record


def score_files(tracks: Path, events: Path, criteria: Criteria) -> ScoreRecord:
    """Judges the tracks of `tracks` (see `open_tracks`) by the truth of `events`, a folder or zip
    archive of events; those without tracks are left out.

    Raises:
        InputError: files are damaged, tracks are of an event or of hits that `events` lacks, list
            a hit twice, or an event has no truth; the message names file, row and remedy.
    """
    source = open_tracks(tracks)
    names = _names_by_number(events)
    judged: list[JudgedTracks] = []
    scores: list[EventScore] = []
    matchings = criteria.matchings()
    for number in follow(_known(source, names, events), len(source.events), "score"):
        event = _read_with_truth(events, names[number])
        judged.append(judge_tracks(event, source.read(number), matchings))
        record = judged_record(summarise_judged(judged[-1:], matchings))
        hits = len(event.hits["hit_id"])
        scores.append(EventScore(event=event.name, hits=hits, **dict(record)))
    return ScoreRecord(
        **dict(judged_record(summarise_judged(judged, matchings))),
        tracks=printable(str(tracks.resolve())),
        data=printable(str(events.resolve())),
        min_hits=criteria.min_hits,
        pt_min=criteria.pt_min,
        matching_fraction=criteria.matching_fraction,
        events=tuple(scores),
        events_without_tracks=len(names) - len(scores),
    )


def _names_by_number(events: Path) -> dict[int, str]:
    names: dict[int, str] = {}
    for name in find_events(events):
        other = names.setdefault(event_number(name), name)
        if other != name:
            raise InputError(
                f"{events}: {other} and {name} have one number, by which tracks tell events; "
                "rename the files of one of them"
            )
    return names


def _known(source: TrackSource, names: dict[int, str], events: Path) -> list[int]:
    """Returns the numbers of the events that have tracks."""
    for number, where in source.events.items():
        if number not in names:
            raise InputError(
                f"{where}: these are tracks of event {number}, which {events} does not hold; name "
                "the folder or zip archive that does, or remove them"
            )
    return list(source.events)


def _read_with_truth(events: Path, name: str) -> Event:
    event = read_event(events, name)
    if event.truth is None:
        raise InputError(
            f"{events}: {name} has no truth, by which its tracks could be judged; add "
            f"{name}-truth.csv, or particle_id to ColliderML's hits, or leave its tracks out"
        )
    return event
