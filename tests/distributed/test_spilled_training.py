"""Trainings whose edges are in files: the same bits as in memory, on one rank and on several."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.cost.machines import find_machine
from bigtrk.disk.local_files import UnnamedFiles
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.costs import make_cost
from bigtrk.training.data import places
from bigtrk.training.data.event_source import open_events
from bigtrk.training.data.places import InputFiles
from bigtrk.training.settings import Configuration
from tests.distributed import test_routes
from tests.distributed.ranks import Works, run_all
from tests.distributed.test_routes import losses, settings, train
from tests.open_files import open_files

data = test_routes.data  # the fixture
CHECKOUT = Path(__file__).resolve().parents[2]

# Of the large event in sectors edges take more memory than the blocks they travel in.
WIDE = {"hidden": 96, "layers": 4}


def least_gib(configuration: Configuration, data: Path, parts: int, ranks: int) -> float:
    """Just enough memory for the large event with all of its edges in files."""
    cost = replace(make_cost(configuration, ranks, ranks, find_machine(None)), spills_beyond=0.0)
    source = open_events([data / "sectors"])[0]
    return 1.0001 * cost.memory(source.size, parts, ranks).total / 2**30


def train_noting_files(ranks: Ranks, configuration: Configuration) -> tuple[int, int]:
    """Trains; returns how often edges went to a file, and how often their inputs."""
    taken: list[int] = []
    written: list[int] = []
    places._LEAST_BYTES = 1  # these are small events
    write = InputFiles._written

    def noted_inputs(files: InputFiles, memories: Any, starts: Any, size: int) -> Any:
        written.append(size)
        return write(files, memories, starts, size)

    InputFiles._written = noted_inputs  # type: ignore[assignment,method-assign]
    take = UnnamedFiles.take

    def noted(files: UnnamedFiles, size: int) -> Any:
        taken.append(size)
        return take(files, size)

    UnnamedFiles.take = noted  # type: ignore[assignment,method-assign]
    train(ranks, configuration)
    return len(taken) - len(written), len(written)


@pytest.mark.parametrize(
    ("world", "engine", "parts", "ranks"),
    [
        (1, "ddp", 1, 1),
        pytest.param(2, "ddp", 4, 2, marks=pytest.mark.slow),  # 23 s; three ranks do as much
        (3, "fsdp2", 4, 2),
    ],
)
def test_edges_in_files_train_the_same_bits(
    tmp_path: Path, data: Path, world: int, engine: str, parts: int, ranks: int
) -> None:
    folder, runs = tmp_path / "spill", (tmp_path / "memory", tmp_path / "files")
    folder.mkdir()
    chosen = {"routing": "stored" if world > 1 else "automatic"}
    kept = wide(settings(data, runs[0], **chosen), engine)
    gib = least_gib(kept, data, parts, ranks)
    spilled = settings(data, runs[1], **chosen, memory_gib=gib, spill=folder)
    works: Works = {
        "memory": (train, (kept,)),
        "files": (train_noting_files, (wide(spilled, engine),)),
    }
    assert all(max(number) > 0 for number in zip(*run_all(world, works)["files"], strict=True))
    assert losses(runs[0]) == losses(runs[1])
    expected, found = (load_file(run / "model.safetensors") for run in runs)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not list(folder.iterdir())


def wide(configuration: Configuration, engine: str) -> Configuration:
    own = {"engine": {"name": engine}, "model": WIDE}
    return Configuration.model_validate({**configuration.model_dump(), **own})


def program(data: Path, run: Path, folder: Path, *more: str) -> subprocess.Popen[str]:
    configuration = wide(settings(data, run), "ddp")
    width = [f"model.{name}={value}" for name, value in WIDE.items()]
    return subprocess.Popen(
        [
            *(sys.executable, "bigtrk/train.py", f"data.train=[{data}/sectors]", *width),
            *("data.validation=0", "training.epochs=10000", f"run.folder={run}"),
            f"training.memory_gib={least_gib(configuration, data, 1, 1)}",
            f"training.spill={folder}",
            *more,
        ],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_steps(run: Path) -> None:
    until = time.monotonic() + 60
    while not (run / "metrics.jsonl").exists() or len(losses(run)) < 2:
        assert time.monotonic() < until, "no step was trained"
        time.sleep(0.05)


@pytest.mark.slow  # the files of the test below have no names either
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_files_are_gone_however_a_training_ends(
    tmp_path: Path, data: Path, end: signal.Signals
) -> None:
    folder = tmp_path / "spill"
    folder.mkdir()
    running = program(data, tmp_path / "run", folder)
    wait_for_steps(tmp_path / "run")
    assert open_files(folder, running.pid)
    running.send_signal(end)
    running.communicate(timeout=60)
    assert not list(folder.iterdir())


def test_a_folder_removed_while_training_harms_nothing_that_is_open(
    tmp_path: Path, data: Path
) -> None:
    """The files have no names, so the folder is empty and can be removed; they are used again."""
    folder = tmp_path / "spill"
    folder.mkdir()
    running = program(data, tmp_path / "run", folder)
    wait_for_steps(tmp_path / "run")
    assert open_files(folder, running.pid)
    folder.rmdir()
    before = len(losses(tmp_path / "run"))
    until = time.monotonic() + 60
    while len(losses(tmp_path / "run")) < before + 3:
        assert time.monotonic() < until
        assert running.poll() is None
        time.sleep(0.05)
    running.terminate()
    assert "saved; continue with --resume" in running.communicate(timeout=60)[0]
