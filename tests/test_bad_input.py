"""Bad input to the programs: one clear line, exit status 2, nothing half-made."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event
from tests.programs import Run, refusal_of

HITS = "event000000000-hits.csv.gz"


def one_line(text: str) -> str:
    """The message, after the progress lines."""
    last = text.strip().splitlines()[-1]
    assert "error: " in last
    assert "Traceback" not in text
    return last


def test_a_bad_event(tmp_path: Path, run_program: Run) -> None:
    """Readers of events refuse more (tests/events)."""
    write_event(simulate_event(30, seed=1), tmp_path / "events")
    path = tmp_path / "events" / HITS
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    hit_id, _, rest = lines[4].split(",", 2)
    lines[4] = f"{hit_id},nan,{rest}"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    command = ["bigtrk", "build", str(tmp_path / "events"), str(tmp_path / "graphs")]
    status, _, errors = run_program(command)
    assert (status, f"{HITS}, row 5: x" in one_line(errors)) == (2, True), errors
    assert not (tmp_path / "graphs").exists()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["bigtrk", "build", "absent", "graphs", "--from", "heptrkx"], "absent"),
        (["bigtrk", "evaluate", "absent", "graphs"], "absent"),
        (["bigtrk/train.py"], "graphs: no such folder; make graphs with 'bigtrk build"),
        (["bigtrk", "resume", "absent"], "absent: no such folder; name the folder of a run"),
        (["bigtrk", "build", "absent"], "build --help tells more)"),
        (["bigtrk/train.py", "--data.train", "g"], "a setting is key.sub=value, without --"),
        (["bigtrk/train.py", "/"], "/: is a folder; write data.train=/ to train on it, or"),
    ],
)
def test_what_is_missing_is_named(
    command: list[str], named: str, workdir: Path, run_program: Run
) -> None:
    errors = refusal_of(run_program(command))
    assert len(errors.strip().splitlines()) == 1
    assert named in errors
    assert list(workdir.iterdir()) == []


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
