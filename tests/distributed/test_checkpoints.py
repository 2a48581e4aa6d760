"""One format for all engines and numbers of ranks, written while training goes on."""

import resource
import threading
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.training.checkpoint import checkpointer as checkpoint
from bigtrk.training.checkpoint.checkpointer import Checkpointer, RunDescription
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.checkpoint.manifest import EpochTotals, Progress, write_shard
from bigtrk.training.guards import LossHistory
from bigtrk.training.schedule import Plateau
from tests.distributed.graphs import sources
from tests.distributed.parity import Oracle, worst
from tests.distributed.ranks import message, run_ranks
from tests.distributed.trial import State, Trial, same, small

DECAY = 0.7  # of averaged weights
READERS = ("DDP", "FSDP2", "zero1", "zero3")
WRITERS = ("DDP", "FSDP2", "zero0", "zero1", "zero2", "zero3")
Pairs = dict[str, tuple[str, ...]]  # by an engine that reads, those whose checkpoints it reads


def progress(step: int) -> Progress:
    return Progress(0, step, step, Plateau(), LossHistory(), EpochTotals())


class Saved(Trial):
    """A trial with averaged weights, and its checkpoints in `run`."""

    def __init__(self, ranks: Ranks, engine: str, run: Path, layers: int = 2) -> None:
        super().__init__(ranks, small(engine, layers), OptimizerSettings())
        self.averages = Averages(self.engine, DECAY)
        self.move(run)

    def move(self, run: Path) -> None:
        run.mkdir(parents=True, exist_ok=True)
        description = RunDescription("data", self.name, {})
        self.checkpoints = Checkpointer(run, self.engine, description, lambda: None, self.averages)

    def train(self) -> None:
        self.step()
        self.averages.update()

    def save(self, step: int) -> None:
        self.checkpoints.save(progress(step))
        self.checkpoints.wait()


def stored(run: Path) -> State:
    """The whole state of a run's newest checkpoint, "weight/NAME" and so on, and the updates."""
    found = last_good(run)
    state: State = {}
    for shard in found.checkpoint.shards:
        tensors = load_file(found.folder / shard.file)
        for name, (start, stop, updates) in shard.pieces.items():
            shape = found.checkpoint.shapes[name]
            state[f"updates/{name}"] = torch.tensor(updates)
            for kind in ("weight", "exp_avg", "exp_avg_sq", "average"):
                whole = state.setdefault(f"{kind}/{name}", torch.full(shape, torch.nan))
                whole.view(-1)[start:stop] = tensors[f"{kind}/{name}"]
    return state


class Written(NamedTuple):
    """An engine's weights before its first step and after each of three, with a checkpoint after
    the second; averaged weights then, the logits of the weights and of the average, and the weights
    once more; weights and average one step later, and one step after loading the checkpoint.
    """

    weights: list[State]
    averaged: State
    logits: tuple[State, State]
    put_back: State
    later: tuple[State, State]
    again: tuple[State, State]


def engines_write(ranks: Ranks, folder: Path) -> dict[str, Written]:
    """Each engine's checkpoint before its first step and after two, and what it then has."""
    found = {}
    for name in WRITERS:
        trial = Saved(ranks, name, folder / f"{name}-fresh")
        trial.save(0)
        trial.move(folder / name)
        weights = [trial.weights()]
        for _ in range(2):
            trial.train()
            weights.append(trial.weights())
        trial.save(2)
        averaged, plain = trial.averages.weights(), trial.logits()
        with trial.averages.in_model():
            logits = plain, trial.logits()
        put_back = trial.weights()
        trial.train()
        weights.append(trial.weights())
        later = weights[-1], trial.averages.weights()
        again = Saved(ranks, name, folder / name)
        again.checkpoints.load()
        again.train()
        resumed = again.weights(), again.averages.weights()
        found[name] = Written(weights, averaged, logits, put_back, later, resumed)
    return found


def engines_read(ranks: Ranks, folder: Path, out: Path, pairs: Pairs) -> dict[str, State]:
    """Weights of each reader, after loading checkpoints of its engines, and what it then writes."""
    found = {}
    for name, engines in pairs.items():
        reader = Saved(ranks, name, folder)
        for written in engines:
            reader.move(folder / written)
            reader.checkpoints.load()
            found[f"{name}-{written}"] = reader.weights()
            reader.move(out / f"{name}-{written}")
            reader.save(2)
    return found


def two_each(world_size: int) -> Pairs:
    """Lets four engines read two others' each, and so all: other ones on other numbers of ranks."""
    starts = range(world_size, world_size + 2 * len(READERS), 2)
    return {
        reader: tuple(WRITERS[(start + i) % len(WRITERS)] for i in range(2))
        for reader, start in zip(READERS, starts, strict=True)
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    return run_ranks(2, engines_write, folder)[0], folder


@pytest.mark.parametrize("engine", WRITERS)
def test_files_hold_the_whole_state_in_equal_shares(two: tuple[Any, Path], engine: str) -> None:
    then = two[0][engine].weights[2]
    state = stored(two[1] / engine)
    weights = {name: state[f"weight/{name}"] for name in then}
    assert same(weights, then)
    averaged = two[0][engine].averaged
    assert same({name: state[f"average/{name}"] for name in then}, averaged)
    assert not any(value.isnan().any() for value in state.values())
    assert all(state[f"updates/{name}"] == 2 for name in then)
    assert all(state[f"exp_avg_sq/{name}"].any() for name in then)
    sizes = [shard.bytes for shard in last_good(two[1] / engine).checkpoint.shards]
    assert len(sizes) == 2
    assert max(sizes) < 1.1 * min(sizes)
    fresh = stored(two[1] / f"{engine}-fresh")
    assert all(fresh[f"updates/{name}"] == 0 for name in then)
    assert not any(fresh[f"exp_avg/{name}"].any() for name in then)


@pytest.mark.parametrize("engine", WRITERS)
def test_an_engine_goes_on_bit_for_bit(two: tuple[Any, Path], engine: str) -> None:
    written = two[0][engine]
    assert not same(written.weights[2], written.weights[3])
    for later, again in zip(written.later, written.again, strict=True):
        assert same(later, again)


def averaged_by_hand(weights: list[State], dtype: torch.dtype) -> State:
    """Averages whole weights of successive steps in one process."""
    average = {name: value.to(dtype) for name, value in weights[0].items()}
    for later in weights[1:]:
        for name, value in later.items():
            average[name] = average[name] * DECAY + value.to(dtype) * (1 - DECAY)
    return average


@pytest.mark.parametrize("engine", WRITERS)
def test_weights_are_averaged_as_one_process_does(two: tuple[Any, Path], engine: str) -> None:
    written = two[0][engine]
    for weights, averaged in (
        (written.weights[:3], written.averaged),
        (written.weights, written.later[1]),
    ):
        assert same(averaged, averaged_by_hand(weights, torch.float32))
        exact = averaged_by_hand(weights, torch.float64)
        for name, value in averaged.items():
            torch.testing.assert_close(value.double(), exact[name], rtol=1e-6, atol=1e-7)
    fresh = stored(two[1] / f"{engine}-fresh")
    assert same({name: fresh[f"average/{name}"] for name in weights[0]}, weights[0])


@pytest.mark.parametrize("engine", WRITERS)
def test_the_average_is_evaluated_and_the_weights_put_back(
    two: tuple[Any, Path], engine: str
) -> None:
    written = two[0][engine]
    for weights, logits in zip((written.weights[2], written.averaged), written.logits, strict=True):
        expected = Oracle(small(engine), [s.graph for s in sources()], weights).logits()
        assert worst(logits, expected) < 1e-5
    assert worst(*written.logits) > 1e-3, "or the average would have scored nothing"
    assert same(written.put_back, written.weights[2])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_engine_reads_every_other(two: tuple[Any, Path], world_size: int) -> None:
    """Readers find the weights that engines wrote, and write the same state on their ranks."""
    wrote, folder = two
    out = folder / str(world_size)
    read = run_ranks(world_size, engines_read, folder, out, two_each(world_size))[0]
    for name, weights in read.items():
        written = name.split("-")[1]
        assert same(weights, wrote[written].weights[2]), name
        assert same(stored(out / name), stored(folder / written)), name
        assert len(last_good(out / name).checkpoint.shards) == world_size
    assert {name.split("-")[1] for name in read} == set(WRITERS)


def saved_while_training(ranks: Ranks, run: Path) -> tuple[bool, State, State]:
    """Whether nothing was written while the next step was trained; weights then and later."""
    trial, released = Saved(ranks, "DDP", run), threading.Event()
    write = write_shard

    def write_later(*arguments: Any) -> Any:
        assert released.wait(timeout=300)
        return write(*arguments)

    then = trial.weights()
    with patch.object(checkpoint, "write_shard", write_later):
        trial.checkpoints.save(progress(0))
        trial.train()
        nothing = not (run / "checkpoints" / "step-00000000").exists()
        released.set()
        trial.checkpoints.wait()
    return nothing, then, trial.weights()


def test_training_goes_on_while_the_state_is_written(tmp_path: Path) -> None:
    nothing, then, later = run_ranks(2, saved_while_training, tmp_path)[0]
    assert nothing
    state = stored(tmp_path)
    assert same({name: state[f"weight/{name}"] for name in then}, then)
    assert not same(then, later)


def cannot_write(ranks: Ranks, run: Path) -> list[str]:
    """Returns the message when rank 1 may write no file of this size, and what is read then."""
    trial = Saved(ranks, "DDP", run)
    trial.save(1)
    if ranks.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    trial.checkpoints.save(progress(2))
    collectives = (lambda: trial.checkpoints.save(progress(3)), trial.checkpoints.wait)
    said = [told for collective in collectives if (told := message(collective))]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return [*said, str(trial.checkpoints.load().step)]


def not_finite(ranks: Ranks, run: Path) -> list[str]:
    """Returns the message when a weight of rank 1 is not finite, and what is read then."""
    trial = Saved(ranks, "FSDP2", run)
    trial.save(1)
    if ranks.rank == 1:
        next(trial.engine.pieces()).values["weight"].fill_(torch.inf)
    return [str(message(lambda: trial.save(2))), str(trial.checkpoints.load().step)]


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        (cannot_write, ("",)),
        (not_finite, ("weight/", "became NaN or infinite; lower optimizer.lr")),
    ],
)
def test_a_rank_that_cannot_write_stops_all(tmp_path: Path, failing: Any, why: list[str]) -> None:
    first, second = run_ranks(2, failing, tmp_path)
    assert first == second
    said, read = first
    assert f"checkpoint step-00000002 could not be written: rank 1: {why[0]}" in said
    assert why[-1] in said
    assert read == "1"


def another_model(ranks: Ranks, run: Path) -> str | None:
    Saved(ranks, "DDP", run).save(1)
    return message(Saved(ranks, "DDP", run, layers=3).checkpoints.load)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    (said,) = run_ranks(1, another_model, tmp_path)
    assert "of another model (layers." in said
