"""Bad input to the programs: one clear line, exit status 2, nothing half-made."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event
from tests.programs import run_here

HITS = "event000000000-hits.csv.gz"
TRUTH = "event000000000-truth.csv.gz"
Break = Callable[[Path], None]


def rewrite(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    with gzip.open(path, "rt") as stream:
        lines = stream.read().splitlines()
    with gzip.open(path, "wt") as stream:
        stream.write("\n".join(change(lines)) + "\n")


def truncate(folder: Path) -> None:
    path = folder / HITS
    path.write_bytes(path.read_bytes()[:-200])


def nan_coordinate(folder: Path) -> None:
    def change(lines: list[str]) -> list[str]:
        hit_id, _, rest = lines[4].split(",", 2)
        return [*lines[:4], f"{hit_id},nan,{rest}", *lines[5:]]

    rewrite(folder / HITS, change)


def unknown_hit(folder: Path) -> None:
    rewrite(folder / TRUTH, lambda lines: [*lines, "999999," + lines[-1].split(",", 1)[1]])


# Others are refused in tests/events, by the readers that these commands use.
CASES: list[tuple[Break, list[str]]] = [
    (truncate, [HITS, "truncated"]),
    (nan_coordinate, [HITS, "row 5", "x"]),
    (unknown_hit, [TRUTH, "999999"]),
]


def one_line(text: str) -> str:
    """The message, after the progress lines."""
    last = text.strip().splitlines()[-1]
    assert "error: " in last
    assert "Traceback" not in text
    return last


@pytest.mark.parametrize(("spoil", "named"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_bad_event(
    spoil: Break,
    named: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_event(simulate_event(30, seed=1), tmp_path / "events")
    spoil(tmp_path / "events")
    command = ["bigtrk", "build", str(tmp_path / "events"), str(tmp_path / "graphs")]
    status, _, errors = run_here(command, monkeypatch, capsys)
    assert status == 2
    message = one_line(errors)
    assert all(part in message for part in named), message
    assert not (tmp_path / "graphs").exists()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["bigtrk", "build", "absent", "graphs", "--from", "heptrkx"], "absent"),
        (
            ["bigtrk", "simulate", "events", "--detectors", "absent"],
            "absent: is neither a detector that is built in (trackml, odd) nor a file",
        ),
        (["bigtrk-partition", "absent", "sectors", "--parts", "2"], "absent: no such folder"),
        (["bigtrk", "evaluate", "absent", "graphs"], "absent"),
        (["bigtrk", "report", "absent"], "absent"),
        (["bigtrk/train.py"], "graphs: no such folder; make graphs with 'bigtrk build"),
        (["bigtrk/train.py", "absent.yaml"], "absent.yaml: no such file"),
        (["bigtrk", "resume", "absent"], "absent/run.json: no such file"),
    ],
)
def test_what_is_missing_is_named(
    command: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, errors = run_here(command, monkeypatch, capsys)
    assert status == 2
    assert len(errors.strip().splitlines()) == 1
    assert named in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2: must be below WORLD_SIZE=2"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "MASTER_ADDR is not set"),
    ],
)
def test_ranks_that_cannot_be_are_refused_at_once(
    variables: dict[str, str],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    status, _, errors = run_here(["bigtrk/train.py"], monkeypatch, capsys)
    assert status == 2
    (line,) = errors.splitlines()
    assert line.startswith(f"bigtrk/train.py: error: {named}")


def write_heptrkx(folder: Path) -> None:
    """A graph of four nodes, which knows no particles."""
    folder.mkdir()
    np.savez(
        folder / "event000000001_g000.npz",
        X=np.ones((4, 3), np.float32),
        y=np.ones(3, np.float32),
        Ri_rows=np.array([1, 2, 3]),
        Ri_cols=np.arange(3),
        Ro_rows=np.array([0, 1, 2]),
        Ro_cols=np.arange(3),
    )
