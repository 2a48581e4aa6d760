"""A training that is asked to stop, as a batch system does it, or killed; one started twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk.folder_lock import LOCK
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders.build_folder import build_folder
from bigtrk.program import PROGRAM, main
from bigtrk.records.run_folder import read_run
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import torchrun_command, torchrun_environment
from tests.distributed.ranks import FORKSERVER
from tests.programs import Run, output_of

SMALL = ("model.hidden=8", "model.layers=1", "training.epochs=100000")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    simulate_folder(folder / "events", range(3), 20, 0, None)
    build_folder(folder / "events", folder / "graphs")
    return folder / "graphs"


class Training:
    """A training in a process forked from one that has imported all that it needs."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._said = folder / "said"
        self._said.touch()
        self._process = FORKSERVER.Process(target=_main, args=(folder, arguments, self._said))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Returns the exit status, None while it runs."""
        return self._process.exitcode

    def ended_by(self, number: int) -> list[str]:
        """Sends a signal; returns the lines on stderr at the end."""
        os.kill(self.pid, number)
        self._process.join(timeout=300)
        return self._said.read_text().splitlines()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _main(folder: Path, arguments: tuple[str, ...], said: Path) -> None:
    for stream, path in ((1, Path(os.devnull)), (2, said)):
        os.dup2(os.open(path, os.O_WRONLY), stream)
    os.chdir(folder)
    sys.argv = [PROGRAM, *arguments]
    main()


def wait_for(file: Path, poll: Callable[[], int | None]) -> None:
    while not file.exists():
        assert poll() is None
        time.sleep(0.05)


@contextmanager
def started(graphs: Path, run: Path, there: str, *settings: str) -> Iterator[Training]:
    """A training without end, once it has written a file; it is killed after the block."""
    arguments = (f"data.train=[{graphs}]", f"run.folder={run}", *SMALL, *settings)
    training = Training(run.parent, *arguments)
    try:
        wait_for(run / there, training.poll)
        yield training
    finally:
        training.kill()


def test_sigterm_saves_and_asks_to_be_started_again(
    tmp_path: Path, graphs: Path, run_program: Run
) -> None:
    run = tmp_path / "run"
    with started(graphs, run, "metrics.jsonl") as training:
        said = training.ended_by(signal.SIGTERM)[-1]
    done = len(read_run(run).steps)
    assert training.poll() == 75
    saved = f"bigtrk/train.py: SIGTERM (rank 0): stopped after step {done}, saved"
    assert said == f"{saved}; continue with 'bigtrk resume {run}'"
    assert not (run / LOCK).exists()
    resume = ["bigtrk/train.py", "--resume", str(run), *SMALL, "training.minutes=1e-9"]
    assert "reports lack" not in output_of(run_program(resume))
    assert [step.step for step in read_run(run).steps] == list(range(done + 1))


def evaluated(run: Path, graphs: Path, run_program: Run) -> dict[str, Any]:
    """Returns what `bigtrk evaluate` says, except the time."""
    command = ["bigtrk", "evaluate", str(run), str(graphs), "--json"]
    status, said, errors = run_program(command)
    assert status == 0, errors
    assert f"evaluation in {run}/evaluations/graphs-" in errors
    found: dict[str, Any] = json.loads(said)
    del found["made"]
    return found


def test_a_run_is_evaluated_while_it_lives_and_once_it_is_stopped(
    tmp_path: Path, graphs: Path, run_program: Run
) -> None:
    run, there = tmp_path / "run", "checkpoints/latest.json"
    with started(graphs, run, there, "data.validation=1") as training:
        living = evaluated(run, graphs, run_program)
        assert training.poll() is None
        training.ended_by(signal.SIGTERM)
    assert training.poll() == 75
    stopped = evaluated(run, graphs, run_program)
    assert 0 < living["step"] <= stopped["step"] == len(read_run(run).steps)
    assert (stopped["events"], stopped["events_left_out"]) == (1, 2)
    # One more step that changes no weight ends the run.
    resume = ["bigtrk/train.py", "--resume", str(run), "training.minutes=1e-9"]
    assert run_program([*resume, "optimizer.lr=1e-30"])[0] == 0
    ended = evaluated(run, graphs, run_program)
    assert ended == {**stopped, "step": len(read_run(run).steps)}
    assert len(list((run / "evaluations").iterdir())) == 3


def test_ctrl_c_under_torchrun_saves_once_for_all(tmp_path: Path, graphs: Path) -> None:
    """A terminal sends it to torchrun and to the ranks, and torchrun sends it on to these."""
    run = tmp_path / "run"
    settings = [f"data.train=[{graphs}]", f"run.folder={run}", *SMALL]
    with subprocess.Popen(
        torchrun_command(2, TRAIN, settings),
        env=torchrun_environment(2),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as launch:
        wait_for(run / "metrics.jsonl", launch.poll)
        os.killpg(launch.pid, signal.SIGINT)
        said = launch.communicate(timeout=300)[1]
    steps = len(read_run(run).steps)
    told = f"continue with --resume {run} instead of the settings, started by torchrun"
    assert f"stopped after step {steps}, saved; {told}" in said
    assert said.count("saving after this step") == 1


def test_ctrl_c_elsewhere_ends_in_one_line(tmp_path: Path) -> None:
    events = tmp_path / "events"
    simulate = ["simulate", str(events), "--events", "100000"]
    with subprocess.Popen(
        [sys.executable, "-m", "bigtrk", *simulate],
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs, such as CI may be, ignore Ctrl-C, and hand that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as work:
        try:
            wait_for(events, work.poll)
            work.send_signal(signal.SIGINT)
            said = work.communicate(timeout=300)[1].splitlines()
        finally:
            work.kill()
    assert "Traceback" not in "".join(said)
    assert said[-1].endswith(": interrupted")
    assert work.returncode == 130, said
