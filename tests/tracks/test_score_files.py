"""Tracks of files judged: against the field's own software, and counted by hand."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigtrk.errors import InputError
from bigtrk.events.reader import read_event
from bigtrk.events.truth import hit_particles
from bigtrk.records.evaluation import MatchingRecord, ScoreRecord
from bigtrk.tracks.files import write_submission, write_tracks
from bigtrk.tracks.matching import Criteria
from bigtrk.tracks.score_files import score_files
from tests.tracks.judged_events import (
    FIRST,
    FIRST_SCORE,
    FIRST_TRACKS,
    SECOND,
    SECOND_TRACKS,
    columns,
    write_events,
)
from tests.tracks.subevent import SUBMISSIONS

CRITERIA = Criteria(min_hits=3, pt_min=0.5)
SUBEVENT = "data/trackml_subevent"


def by_matching(found: ScoreRecord) -> dict[str, MatchingRecord]:
    return {f"{match.style} {match.mode}": match for match in found.matching}


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_every_golden_submission(name: str, testdata: Path, tmp_path: Path) -> None:
    """Tracks and fakes of each style, and the score, as acorn and trackml-library have them; their
    efficiency counts particles of fewer hits, too (tests/tracks/test_matching.py has it).
    """
    table = pd.read_csv(testdata / f"golden/trackml_score/{name}.csv.gz").assign(event_id=1)
    table.to_csv(tmp_path / "mine.csv", index=False)
    golden = json.loads((testdata / "golden/trackml_score/scores.json").read_text())["scores"]
    results = json.loads((testdata / "golden/track_matching/results.json").read_text())["results"]
    for length in (3, 5):
        criteria = Criteria(min_hits=length, pt_min=0.5)
        found = score_files(tmp_path / "mine.csv", testdata / SUBEVENT, criteria)
        assert found.trackml_score == pytest.approx(golden[name], rel=1e-12, abs=1e-15)
        for style in ("ATLAS", "one_way", "two_way"):
            key = f"{name}|pt_min=0.5|min_track_length={length}|{style}|noise_kept"
            match, expected = by_matching(found)[f"{style} acorn"], results[key]
            assert match.n_tracks == expected["n_tracks"], key
            assert match.n_matched == expected["n_matched_tracks"], key
            assert match.fake_rate == expected["fake_rate"], key


def test_perfect_tracks(testdata: Path, tmp_path: Path) -> None:
    """Numbered by their particles, whose ids float64 does not hold."""
    event = read_event(testdata / SUBEVENT)
    particle = hit_particles(event)
    assert particle.max() > 2**53
    hit_id = event.hits["hit_id"].astype(np.int64)
    in_tracks = particle != 0
    write_tracks(tmp_path / "out", event.name, hit_id[in_tracks], particle[in_tracks])
    found = score_files(tmp_path / "out", testdata / SUBEVENT, CRITERIA)
    assert found.trackml_score == pytest.approx(1)
    assert found.matching[0].n_particles == 184
    for match in found.matching:
        rates = (match.efficiency, match.fake_rate, match.duplicate_rate)
        assert rates == (1, 0, 0), match


def test_two_events_counted_by_hand(tmp_path: Path) -> None:
    events = write_events(tmp_path / "events")
    tracks = [(FIRST, *columns(FIRST_TRACKS)), (SECOND, *columns(SECOND_TRACKS))]
    write_submission(tmp_path / "mine.csv", tracks)
    found = score_files(tmp_path / "mine.csv", events, Criteria())
    for one in tracks:
        write_tracks(tmp_path / "out", *one)
    alike = score_files(tmp_path / "out", events, Criteria())
    assert alike.model_dump(exclude={"tracks"}) == found.model_dump(exclude={"tracks"})
    counted = {
        # particles, found, tracks, matched, duplicates per particle found
        (FIRST, "ATLAS strict"): (2, 2, 2, 2, 0),
        (FIRST, "one_way strict"): (2, 2, 2, 2, 0),
        (FIRST, "two_way strict"): (2, 2, 2, 2, 0),
        (SECOND, "ATLAS strict"): (1, 1, 2, 2, 1),
        # Half of its hits are not more than half.
        (SECOND, "one_way strict"): (1, 0, 2, 2, None),
        (SECOND, "two_way strict"): (1, 0, 2, 0, None),
    }
    assert [(event.event, event.hits) for event in found.events] == [(FIRST, 9), (SECOND, 6)]
    for event in found.events:
        for match in event.matching:
            numbers = (match.n_particles, match.n_reconstructed, match.n_tracks, match.n_matched)
            expected = counted.get((event.event, f"{match.style} {match.mode}"))
            if expected:
                assert (*numbers, match.duplicate_rate) == expected, match
    assert [event.trackml_score for event in found.events] == [FIRST_SCORE, 0]
    assert found.trackml_score == FIRST_SCORE / 2
    pooled = by_matching(found)
    assert pooled["two_way strict"].efficiency == 2 / 3
    assert pooled["two_way strict"].fake_rate == 1 / 2
    assert pooled["ATLAS strict"].duplicate_rate == 1 / 3
    # Track 0 has 3 of 4 hits of particle 7; track 5 has 2 of 3 of particle 8.
    stricter = by_matching(
        score_files(tmp_path / "mine.csv", events, Criteria(matching_fraction=0.7))
    )
    assert stricter["ATLAS strict"].fake_rate == 1 / 4


def test_events_without_tracks_are_counted_and_left_out(tmp_path: Path) -> None:
    events = write_events(tmp_path / "events")
    write_tracks(tmp_path / "out", SECOND, *columns({1: -1}))
    found = score_files(tmp_path / "out", events, Criteria())
    assert [event.event for event in found.events] == [SECOND]
    assert found.events_without_tracks == 1
    match = found.matching[0]
    assert (match.efficiency, match.fake_rate, match.n_tracks) == (0, None, 0)
    assert found.trackml_score == 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("no truth", rf"events: {FIRST} has no truth, so .* add {FIRST}-truth.csv"),
        ("same number", f"{FIRST} and event21 have the same number"),
        ("other event", "mine.csv, row 3: these are tracks of event 23, which is not in .*events;"),
        ("other hit", "mine.csv, row 3: hit 10 is not in the event; remove such hits"),
    ],
)
def test_what_cannot_be_judged_is_said(tmp_path: Path, spoil: str, message: str) -> None:
    events = write_events(tmp_path / "events")
    rows = [(FIRST, *columns({1: 0}))]
    match spoil:
        case "no truth":
            (events / f"{FIRST}-truth.csv.gz").unlink()
        case "same number":
            (events / "event21-hits.csv").touch()
        case "other event":
            rows.append(("event000000023", *columns({1: 0})))
        case "other hit":
            rows = [(FIRST, *columns({1: 0, 10: 0}))]
    write_submission(tmp_path / "mine.csv", rows)
    with pytest.raises(InputError, match=message):
        score_files(tmp_path / "mine.csv", events, Criteria())
    with pytest.raises(InputError, match="pt_min=nan: must be a finite number"):
        Criteria(pt_min=float("nan"))


def test_a_number_that_stands_for_hits_in_no_track(
    testdata: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = read_event(testdata / SUBEVENT)
    particle = hit_particles(event)
    hit_id = event.hits["hit_id"].astype(np.int64)
    missed = particle % 2 == 0
    write_tracks(tmp_path / "zero", event.name, hit_id, np.where(missed, 0, particle))
    write_tracks(tmp_path / "none", event.name, hit_id, np.where(missed, -1, particle))
    score_files(tmp_path / "zero", testdata / SUBEVENT, CRITERIA)
    assert "if it means hits in no track, add --no-track 0" in capsys.readouterr().err
    zero = score_files(tmp_path / "zero", testdata / SUBEVENT, CRITERIA, no_track=0)
    assert "--no-track" not in capsys.readouterr().err
    none = score_files(tmp_path / "none", testdata / SUBEVENT, CRITERIA)
    assert "--no-track" not in capsys.readouterr().err
    assert zero.matching == none.matching
