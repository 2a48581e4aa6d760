"""A bad ColliderML sample is refused in one line: file, row and event, column, remedy."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigtrk.errors import InputError
from bigtrk.events.reader import find_events, read_event
from tests.events.colliderml.samples import HITS, rows, write_sample
from tests.programs import Run

FILE = "train-00000-of-00001.parquet"
NAME = "event000090001"


def refused(call: Callable[[], object], *parts: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def changed(values: Any, place: int, value: Any) -> list[Any]:
    found = list(values)
    found[place] = value
    return found


@pytest.mark.parametrize(
    ("table", "column", "change", "problem", "remedy"),
    [
        ("tracker_hits", "x", lambda v: changed(v, 2, np.nan), "x is nan at place 2", "correct"),
        ("tracker_hits", "y", lambda v: changed(v, 1, None), "y is null at place 1", "correct"),
        ("tracker_hits", "y", lambda _: None, "y is null", "write a list"),
        ("tracker_hits", "z", lambda v: v[:-1], "z has 4 values where", "lists of equal length"),
        (
            "tracker_hits",
            "particle_id",
            lambda v: changed(v, 3, 2**63),
            "particle_id is 9223372036854775808 at place 3",
            "fetch the file again",
        ),
        ("particles", "particle_id", lambda _: [1, 0, 1], "particle_id is 1 again at", "once"),
    ],
)
def test_a_bad_list(
    tmp_path: Path, table: str, column: str, change: Callable[[Any], Any], problem: str, remedy: str
) -> None:
    hits, particles = rows()
    bad = {"tracker_hits": hits, "particles": particles}[table][1]
    bad[column] = change(bad[column])
    write_sample(tmp_path, hits, particles)
    where = f"{tmp_path / table / FILE}, row 2 (event 90001): "
    refused(lambda: read_event(tmp_path, NAME), where, problem, remedy)
    assert read_event(tmp_path, "event000090000").truth is not None


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> str:
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    return str(path)


def test_a_missing_column(tmp_path: Path) -> None:
    write_sample(tmp_path, *rows())
    file = rewritten(tmp_path / "tracker_hits" / FILE, lambda t: t.drop_columns(["surface_id"]))
    message = f"{file}: missing column surface_id; ColliderML's tracker_hits need event_id, "
    refused(lambda: find_events(tmp_path), message, "as of its Release 1: fetch the file again")


FLOATS = pa.array([[1.0]] * 3, pa.list_(pa.float32()))


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("volume_id", FLOATS, ": column volume_id holds list<element: float>, not a list of int"),
        ("x", pa.array([[1]] * 3), ": column x holds list<element: int64>, not a list of float32"),
        ("event_id", pa.array([1.0] * 3), "holds double, not one integer per row; convert it"),
        ("event_id", pa.array([5, None, 6]), ", row 2: event_id is None, not a number from 0 to"),
        ("event_id", pa.array([-1, 5, 6]), ", row 1: event_id is -1, not a number from 0 to"),
        ("event_id", pa.array([5, 6, 5]), ", row 3 (event 5): event_id 5 is also in "),
    ],
)
def test_a_column_of_another_type(
    tmp_path: Path, column: str, values: pa.Array, problem: str
) -> None:
    write_sample(tmp_path, *rows())
    file = rewritten(
        tmp_path / "tracker_hits" / FILE,
        lambda t: t.set_column(t.schema.get_field_index(column), column, values),
    )
    refused(lambda: find_events(tmp_path), file, problem)


def test_an_event_without_particles(tmp_path: Path) -> None:
    hits, particles = rows()
    write_sample(tmp_path, hits, particles[:1])
    message = f"{tmp_path}: the hits of event 90001 have particles, but no file of particles has"
    refused(lambda: read_event(tmp_path, NAME), message, "fetch its file of particles, and name")
    (tmp_path / "particles" / FILE).unlink()
    refused(lambda: read_event(tmp_path, NAME), message)
    assert read_event(tmp_path, NAME, with_truth=False).truth is None


@pytest.mark.parametrize("kept", [0, -9])
def test_a_truncated_file(tmp_path: Path, kept: int) -> None:
    write_sample(tmp_path, *rows())
    path = tmp_path / "tracker_hits" / FILE
    path.write_bytes(path.read_bytes()[:kept])
    refused(lambda: find_events(tmp_path), f"{path}: is not a readable Parquet file (", "fetch it")


def test_a_damaged_page_and_a_footer_that_contradicts_itself(tmp_path: Path) -> None:
    """Asking Arrow for a column of such a footer ends the process: values that may be missing are
    said to be always there, but were counted as the former are.
    """
    write_sample(tmp_path, *rows())
    path = tmp_path / "tracker_hits" / FILE
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(196) + content[200:])
    refused(lambda: read_event(tmp_path, NAME), f"{path}: is not a readable Parquet file (")
    assert content.count(b"\x25\x02\x18\x07element") == len(HITS)
    path.write_bytes(content.replace(b"\x25\x02\x18\x07element", b"\x25\x00\x18\x07element"))
    refused(lambda: read_event(tmp_path, NAME), f"{path}: is not a readable Parquet file (Def")


def test_more_values_than_a_file_of_its_size_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits, _ = rows()
    hits[0] = {
        name: value if name == "event_id" else np.zeros(200_000, np.uint8)
        for name, value in hits[0].items()
    }
    write_sample(tmp_path, hits[:1], [])
    assert len(read_event(tmp_path, with_truth=False).hits["x"]) == 200_000
    monkeypatch.setattr("bigtrk.events.colliderml_reader.FREE_BYTES", 1 << 20)
    (tmp_path / "tracker_hits" / FILE).touch()
    refused(lambda: find_events(tmp_path), "claims 2,400,001 values, too many for")


def test_no_rows_and_no_such_event(tmp_path: Path) -> None:
    write_sample(tmp_path, *rows())
    archive = Path(shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path / "tracker_hits"))
    refused(lambda: find_events(archive), f"{archive}: holds no events", "files, unpack it; else")
    message = (
        f"{tmp_path}: its files of tracker_hits have no event 'event7'; name one of {NAME[:-1]}0"
    )
    refused(lambda: read_event(tmp_path, "event7"), message)
    path = tmp_path / "tracker_hits" / FILE
    refused(lambda: read_event(path), f"{path}: is one file of a sample; name the folder")
    rewritten(path, lambda table: table.slice(0, 0))
    refused(lambda: find_events(tmp_path), f"{tmp_path}: its files of tracker_hits have no rows")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("build csv out --from colliderml", "csv: holds no events in the format of --from coll"),
        ("build sample out --events 9-1", "--events 9-1: give first and last event number"),
        ("build sample out --events 1-2", "sample: none of its 3 events, event000090000 to "),
        ("build sample out --from pyg --events 1-2", "--from pyg imports all graphs"),
        ("build sample out --true-edges", ", row 2 (event 90001): x is nan at place 0 of its list"),
    ],
)
def test_a_command_says_it_in_one_line_and_writes_nothing_by_halves(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    hits, particles = rows()
    hits[1]["x"] = changed(hits[1]["x"], 0, np.nan)
    write_sample(tmp_path / "sample", hits, particles)
    (tmp_path / "csv").mkdir()
    monkeypatch.chdir(tmp_path)
    status, out, error = run_program(["bigtrk", *command.split()])
    last = error.strip().splitlines()[-1]
    assert (status, out) == (2, "")
    assert last.startswith("bigtrk: error: ")
    assert message in last
    written = [path.name for path in (tmp_path / "out").glob("*")]
    assert written in ([], ["event000090000.safetensors"])
