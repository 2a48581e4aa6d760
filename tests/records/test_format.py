"""Files of records say of which format they are; another one is refused in one line."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk.files import read_json, write_json
from bigtrk.errors import InputError
from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.record import FileRecord, read_record, write_record
from bigtrk.records.run import RunRecord
from bigtrk.records.studies import SERIES, SeriesRecord
from bigtrk.studies.scaling.report import run_name
from bigtrk.training.settings import Configuration
from tests.programs import Run, refusal_of
from tests.reports.run_folders import evaluation_record, run_record, run_writer

EVALUATION = "graphs-*.json"  # in `evaluations`
FILES: dict[str, tuple[type[FileRecord], str]] = {
    "run.json": (RunRecord, "train again"),
    EVALUATION: (EvaluationRecord, "remove it and evaluate again"),
    "series.json": (SeriesRecord, "run the series again in another folder"),
}
# What stands there, and what is said of it; None: nothing.
OLDER = [
    (None, "has no format number (an older version wrote it)"),
    (0, "has format 0"),
    (True, "has format True"),
    ("1\n", "has format '1\\n'"),
    ({"a": 1}, "has format {'a': 1}"),
]


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """A series of one run, which was evaluated."""
    config = Configuration().model_dump(mode="json")
    name = run_name(1, 1)
    run_writer(tmp_path)(name, run_record(config=config), evaluation=evaluation_record())
    record = SeriesRecord(kind="weak", ranks=(1,), repeats=1, events=6, validation=2)
    write_record(tmp_path / SERIES, record)
    return tmp_path


def known(name: str) -> int:
    """The format that files of this name have today."""
    return 2 if name == EVALUATION else 1


def spoilt(series: Path, name: str, found: Any) -> Path:
    """The file, with another format or, if None, without one."""
    (path,) = series.rglob(name)
    content = read_json(path)
    content.pop("format", None)
    write_json(path, content if found is None else {**content, "format": found})
    return path


@pytest.mark.parametrize("name", FILES)
def test_an_older_format_is_named_with_the_remedy(series: Path, name: str) -> None:
    kind, again = FILES[name]
    remedy = f"{again}, or use the version of bigtrk that wrote it"
    for found, told in OLDER:
        path = spoilt(series, name, found)
        with pytest.raises(InputError) as error:
            read_record(kind, path)
        assert str(error.value) == (
            f"{path}: {told}, but this bigtrk reads format {known(name)}; {remedy}"
        )


READERS = [
    ("run.json", "bigtrk report"),
    ("run.json", "bigtrk/train.py --resume"),
    (EVALUATION, "bigtrk report"),
    ("series.json", "bigtrk report"),
]


@pytest.mark.parametrize(("name", "command"), READERS)
def test_programs_end_in_one_line(series: Path, name: str, command: str, run_program: Run) -> None:
    newer = known(name) + 1
    path, folder = spoilt(series, name, newer), series
    if name != "series.json":
        folder /= run_name(1, 1)
    errors = refusal_of(run_program([*command.split(), str(folder)]))
    told = f"has format {newer}, but this bigtrk reads format {newer - 1}; update bigtrk\n"
    assert errors.endswith(f"error: {path}: {told}")
    assert errors.count("\n") == 1


def test_a_record_that_is_no_object_is_named(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", [1, None])
    with pytest.raises(InputError, match=r"run\.json: must hold keys and their values \(got"):
        read_record(RunRecord, tmp_path / "run.json")
