"""The tables of tracks that were judged from files."""

from bigtrk.records.evaluation import EventScore, MatchingRecord, ScoreRecord
from bigtrk.reports.evaluation import score_report
from tests.reports.pages import printed

ATLAS = MatchingRecord(
    style="ATLAS",
    mode="strict",
    efficiency=0.9,
    fake_rate=0.0125,
    n_particles=10,
    n_reconstructed=9,
    n_tracks=80,
    n_matched=79,
)


def an_event(number: int, score: float | None) -> EventScore:
    name = f"event{number:09d}"
    return EventScore(event=name, hits=100, trackml_score=score, matching=(ATLAS, ATLAS))


def shown(*scores: float | None, **changes: object) -> str:
    record = ScoreRecord(
        trackml_score=0.5,
        matching=(ATLAS, ATLAS),
        tracks="/tracks",
        data="/events",
        min_hits=3,
        pt_min=1.0,
        matching_fraction=0.5,
        events=tuple(an_event(number, score) for number, score in enumerate(scores)),
        events_without_tracks=0,
    ).model_copy(update=changes)
    return printed(score_report(record))


def cells(text: str, start: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip().startswith(start)]


def test_events_are_judged_alone_and_together() -> None:
    text = shown(0.5)
    assert text.startswith("Tracks of event000000000, 100 hits\n")
    row = ["ATLAS", "strict", "90.00", "1.25", "-", "10", "9", "80", "79"]
    assert cells(text, "ATLAS  ") == [row] * 2
    told = "TrackML score 0.5000 (of all particles). Tracks and particles of at least 3 hits"
    assert told in " ".join(text.split())
    text = shown(0.25, None, 0.75, events_without_tracks=4)
    assert text.startswith("Tracks of 3 events, 300 hits\n")
    flat = " ".join(text.split())
    assert "the mean over 2 of 3 events; the truth of the others gives no weights" in flat
    assert "no tracks are given: 4 more" in flat


def test_no_particle_is_explained() -> None:
    none = MatchingRecord(style="ATLAS", mode="strict", n_particles=0)
    flat = " ".join(shown(None, trackml_score=None, matching=(none,)).split())
    assert "TrackML score unknown" in flat
    assert "--pt-min 0 takes those of unknown momentum" in flat
    assert "No particle has" not in shown(0.5)
