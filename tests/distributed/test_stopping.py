"""A run that is asked to stop saves first; a rank that runs out of memory says so."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.errors import StoppedError
from bigtrk.parallel.ranks import Ranks
from bigtrk.training import loss
from bigtrk.training.settings import Configuration
from bigtrk.training.trainer import StepResult, StepRunner
from tests.distributed.ranks import run_ranks, said
from tests.distributed.runs import settings, step_folders, steps, train
from tests.distributed.trial import same


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, graphs: Path) -> Path:
    """A run of three epochs of two steps that nobody disturbed."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    run_ranks(2, train, settings(graphs, run, 3, {"name": "ddp"}))
    return run


@contextmanager
def before_step(number: int, do: Callable[[], object]) -> Iterator[None]:
    """Calls `do` before this process's step of that number, counted from 1."""
    run, left = StepRunner.run, [number]

    def disturbed(*arguments: object) -> StepResult:
        left[0] -= 1
        if left[0] == 0:
            do()
        return run(*arguments)  # type: ignore[arg-type]

    with patch.object(StepRunner, "run", disturbed):
        yield


def signalled(ranks: Ranks, configuration: Configuration, number: int, step: int) -> str:
    """Returns what a run says when its rank 1 gets a signal in a step."""

    def kill() -> None:
        if ranks.rank == 1:
            os.kill(os.getpid(), number)

    with before_step(step, kill), pytest.raises(StoppedError) as stopped:
        train(ranks, configuration)
    return str(stopped.value)


# After step 4 the second epoch has no step left, but has not been validated.
@pytest.mark.parametrize(("number", "step"), [(signal.SIGTERM, 3), (signal.SIGUSR1, 4)])
def test_a_signal_to_one_rank_stops_all_and_loses_nothing(
    tmp_path: Path, graphs: Path, whole: Path, number: signal.Signals, step: int
) -> None:
    run = tmp_path / "run"
    configuration = settings(graphs, run, 3, {"name": "ddp"})
    said = run_ranks(2, signalled, configuration, int(number), step)
    expected = f"{number.name} (rank 1): stopped after step {step}, saved; continue with --resume"
    assert said == [f"{expected} {run} instead of the settings, started by test again"] * 2
    assert step_folders(run)[-1] == f"step-0000000{step}"
    assert len(steps(run)) == step
    run_ranks(2, train, configuration, run)
    assert steps(run) == steps(whole)
    assert same(*(load_file(folder / "model.safetensors") for folder in (whole, run)))


def exhausted(ranks: Ranks, configuration: Configuration, step: int) -> str:
    """Returns what each rank says when the memory of rank 1 runs out."""
    huge = patch.object(loss, "edge_loss", lambda *_: torch.empty(2**55))
    with ExitStack() as opened:
        if ranks.rank == 1:
            opened.enter_context(before_step(step, lambda: opened.enter_context(huge)))
        return str(said(lambda: train(ranks, configuration)))


def test_a_rank_says_that_its_memory_ran_out(tmp_path: Path, graphs: Path) -> None:
    configuration = settings(graphs, tmp_path / "run", 3, {"name": "ddp"})
    first, second = run_ranks(2, exhausted, configuration, 4, fresh=True)
    assert first == "the other rank is gone"
    assert second.startswith("rank 1 ran out of memory in 'step 3, loss' (")
    assert "can't allocate memory" in second
    assert "lower training.memory_gib" in second
