"""A run's evaluations: each is kept, and the newest on each data folder is read."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.records.evaluation import (
    EVALUATIONS,
    EvaluationRecord,
    read_evaluations,
    write_evaluation,
)
from tests.reports.run_folders import evaluation_record

TIME = datetime(2026, 11, 22, 6, 41, 5, 123456, tzinfo=UTC)


def test_the_file_is_named_by_data_and_time_in_utc(tmp_path: Path) -> None:
    here = TIME.astimezone(timezone(timedelta(hours=2)))
    path = write_evaluation(tmp_path, evaluation_record(data="/data/graphs", made=here))
    assert path == tmp_path / EVALUATIONS / "graphs-20261122T064105Z.json"
    assert read_evaluations(EvaluationRecord, tmp_path)[0].made == TIME


def test_names_of_folders_make_names_of_files(tmp_path: Path) -> None:
    for name in ("a b\n\x1b[31m", "\u00e4" * 255, ""):
        record = evaluation_record(data=f"/data/{name}")
        path = write_evaluation(tmp_path, record)
        assert path.parent == tmp_path / EVALUATIONS
        assert path.name.isprintable()
        assert read_evaluations(EvaluationRecord, tmp_path) == (record,)
        path.unlink()


def test_nothing_is_overwritten_and_the_newest_of_each_folder_is_read(tmp_path: Path) -> None:
    records = [
        evaluation_record(data=data, events=events, made=TIME + timedelta(microseconds=events))
        for events, data in enumerate(["/b/graphs", "/b/graphs", "/a/graphs", "/b/graphs"])
    ]
    # The time in the record counts, not the order of writing.
    written = [write_evaluation(tmp_path, record) for record in reversed(records)]
    assert [path.name.removeprefix("graphs-20261122T064105Z") for path in written] == [
        *(".json", "-2.json", "-3.json", "-4.json")
    ]
    assert len(list((tmp_path / EVALUATIONS).iterdir())) == 4, "no temporary file is left"
    assert read_evaluations(EvaluationRecord, tmp_path) == (records[2], records[3])


def test_links_are_not_followed(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / EVALUATIONS).mkdir(parents=True)
    (run / EVALUATIONS / "graphs-20261122T064105Z.json").symlink_to(outside)
    path = write_evaluation(run, evaluation_record())
    assert path.name == "graphs-20261122T064105Z-2.json"
    assert not outside.exists()
    other = tmp_path / "other"
    other.mkdir()
    outside.mkdir()
    (other / EVALUATIONS).symlink_to(outside)
    with pytest.raises(InputError, match="evaluations: is a symbolic link, which may lead to"):
        write_evaluation(other, evaluation_record())
    assert list(outside.iterdir()) == []


def test_what_is_no_evaluation_is_named(tmp_path: Path) -> None:
    write_evaluation(tmp_path, evaluation_record())
    foreign = tmp_path / EVALUATIONS / "a.json"
    foreign.write_text("{}")
    with pytest.raises(InputError, match=r"a\.json: has no format number .*remove it and evaluate"):
        read_evaluations(EvaluationRecord, tmp_path)
    foreign.write_text('{"format": 2, "data": "x", "made": "2026-11-22T06:41:05"}')
    with pytest.raises(InputError, match=r"a\.json: made: Input should have timezone info"):
        read_evaluations(EvaluationRecord, tmp_path)
