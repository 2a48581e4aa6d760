"""Engines against one process without engine, group or sectors: gradients, weights and norms."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import Stopwatch
from bigtrk.records.metrics import NormsRecord
from bigtrk.training.checkpoint.checkpointer import Checkpointer, RunDescription
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.checkpoint.manifest import EpochTotals, Progress
from bigtrk.training.guards import LossHistory
from bigtrk.training.model_files import build_model
from bigtrk.training.monitoring.meter import group_of
from bigtrk.training.schedule import Plateau
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import sources
from tests.distributed.parity import Oracle, whole, whole_gradients, worst
from tests.distributed.ranks import run_ranks
from tests.distributed.trial import Trial, same, small

CPU = torch.device("cpu")
LR = 1e-2
# Well below the norm of the gradients, so that clipping is seen.
OPTIMIZER = OptimizerSettings(lr=LR, gradient_clipping=1e-3)

FSDP2 = EngineSettings(name="fsdp2")
HYBRID = EngineSettings(name="fsdp2", shard_ranks=2)
COALESCED = EngineSettings(coalesced=True)


def configuration(engine: EngineSettings, **model: Any) -> Configuration:
    return Configuration.model_validate(
        {"model": {"hidden": 8, "layers": 3, **model}, "engine": engine.model_dump()}
    )


CASES = {
    2: [
        configuration(FSDP2, shared_weights=True),
        configuration(FSDP2, name="attention", recompute="layer"),
        configuration(FSDP2, name="attention", recompute="none"),
        configuration(COALESCED, recompute="none"),
    ],
    4: [configuration(HYBRID, recompute="layer")],
}


def first_steps(ranks: Ranks, cases: list[Configuration]) -> list[dict[str, Any]]:
    """Returns each case's first loss, gradients before clipping, and weights after the step."""
    results = []
    for settings in cases:
        trial = Trial(ranks, settings, OPTIMIZER, torch.float64)
        assert len(trial.shares) > 1, "accumulation over several micro-steps"
        seen: dict[str, Tensor] = {}
        update = trial.engine.step

        def step(lr: float, trial: Trial = trial, seen: Any = seen, update: Any = update) -> None:
            seen.update(whole_gradients(trial.engine.model))
            update(lr)

        trial.engine.step = step  # type: ignore[method-assign]
        loss = trial.step(LR).loss
        weights = trial.engine.weights()
        results.append({"loss": loss, "gradients": seen, "weights": weights, "name": trial.name})
    return results


def updated_weights(settings: Configuration, of: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights after one AdamW step along gradients clipped by hand."""
    model = build_model(settings).double()
    named = dict(model.named_parameters())
    norm = torch.sqrt(sum((of[name] ** 2).sum() for name in named))  # type: ignore[arg-type]
    assert norm > 10 * OPTIMIZER.gradient_clipping
    for name, parameter in named.items():
        # torch guards the division so.
        parameter.grad = of[name] * (OPTIMIZER.gradient_clipping / (norm + 1e-6))
    decay = OPTIMIZER.weight_decay
    torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=decay).step()
    return model.state_dict()


def resumed(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Weights of three steps in a row, and of one step after a checkpoint of two."""
    trial, other = (Trial(ranks, configuration(HYBRID), OPTIMIZER, torch.float64) for _ in range(2))
    trial.step(LR), trial.step(LR)
    progress = Progress(0, 2, 2, Plateau(), LossHistory(), EpochTotals())
    description = RunDescription("", trial.name, {})
    with Checkpointer(folder, trial.engine, description, lambda: None) as checkpoints:
        checkpoints.save(progress)
    trial.step(LR)
    with Checkpointer(folder, other.engine, description, lambda: None) as checkpoints:
        assert checkpoints.load() == progress
    other.step(LR)
    shards = [p.to_local() for p in trial.engine.model.parameters() if isinstance(p, DTensor)]
    return {
        "whole": trial.engine.weights(),
        "resumed": other.engine.weights(),
        "held": sum(shard.numel() for shard in shards),
        "files": [shard.bytes for shard in last_good(folder).checkpoint.shards],
    }


def reductions(settings: EngineSettings) -> int:
    """Counts how often a step of two micro-steps reduces, for a model of 4 MB in 1 MB layers."""
    count, stopwatch = 0, Stopwatch(CPU)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
    engine, _ = make_engine(settings, model, OPTIMIZER, stopwatch)

    def add(activity: str, _: float) -> None:
        nonlocal count
        count += activity == "reduce"

    stopwatch.add = add  # type: ignore[method-assign,assignment]
    for last in (False, True):
        with engine.micro_step(last):
            engine.backward(engine.model(torch.ones(1, 512)).sum())
    return count


def small_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))


def initial_weights(ranks: Ranks, engines: list[EngineSettings]) -> list[dict[str, Tensor]]:
    """Each engine's weights, as this rank has them, of models that differ by rank."""
    found = []
    for engine in engines:
        model = small_model(seed=ranks.rank)
        made, _ = make_engine(engine, model, OPTIMIZER, Stopwatch(CPU))
        named = made.model.named_parameters()
        found.append({n.removeprefix("module."): whole(p).detach() for n, p in named})
    return found


def reduced_after_each_micro_step() -> list[bool]:
    """Whether FSDP2's shards have gradients after the first and after the last of two."""
    engine, _ = make_engine(FSDP2, small_model(seed=0), OPTIMIZER, Stopwatch(CPU))
    found = []
    for last in (False, True):
        with engine.micro_step(last):
            engine.backward(engine.model(torch.ones(2, 3)).sum())
        found.append(all(p.grad is not None for p in engine.model.parameters()))
    return found


NORMED = ("DDP", "FSDP2", "zero0", "zero1", "zero3")
GROUPS = ["node_encoder", "edge_encoder", "layers.0", "layers.1", "decoder"]


def norms(ranks: Ranks) -> dict[str, tuple[NormsRecord | None, NormsRecord | None]]:
    """Returns, by engine, norms of a step over several micro-steps, and of one not asked for."""
    trials = {name: Trial(ranks, small(name), OPTIMIZER) for name in NORMED}
    return {
        name: (trial.step(0.0, norms=True).norms, trial.step(0.0).norms)
        for name, trial in trials.items()
    }


def work_of_2(ranks: Ranks) -> dict[str, Any]:
    return {
        "steps": first_steps(ranks, CASES[2]),
        "coalesced": reductions(COALESCED),
        "buckets": reductions(EngineSettings()),
        "reduced": reduced_after_each_micro_step(),
        "norms": norms(ranks),
    }


def work_of_4(ranks: Ranks, folder: Path) -> dict[str, Any]:
    return {
        "steps": first_steps(ranks, CASES[4]),
        "resumed": resumed(ranks, folder),
        "initial": initial_weights(ranks, [COALESCED, HYBRID, FSDP2]),
    }


@pytest.fixture(scope="module")
def ranks_2() -> list[dict[str, Any]]:
    return run_ranks(2, work_of_2)


@pytest.fixture(scope="module")
def ranks_4(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(4, work_of_4, tmp_path_factory.mktemp("checkpoint"), fresh=True)


@pytest.mark.parametrize("world_size", [2, 4])
def test_gradients_and_weights_equal_the_whole_graph(
    world_size: int, request: pytest.FixtureRequest
) -> None:
    cases = CASES[world_size]
    graphs = [event.graph for event in sources()]
    launched = request.getfixturevalue(f"ranks_{world_size}")
    for case, settings in enumerate(cases):
        oracle = Oracle(settings, graphs)
        gradients = oracle.gradients()
        weights = updated_weights(settings, gradients)
        for rank, results in enumerate(launched):
            result = results["steps"][case]
            assert result["loss"] == pytest.approx(oracle.loss(), rel=1e-12), result["name"]
            assert worst(result["gradients"], gradients) < 1e-10, result["name"]
            if rank == 0:
                # Adam divides by the gradient, so it magnifies rounding.
                assert worst(result["weights"], weights) < 1e-9, result["name"]


def norms_of(tensors: dict[str, Tensor]) -> dict[str, float]:
    squares = dict.fromkeys(GROUPS, 0.0)
    for name, tensor in tensors.items():
        squares[group_of(name)] += float(tensor.double().square().sum())
    return {group: square**0.5 for group, square in squares.items()}


@pytest.mark.parametrize("engine", NORMED)
def test_norms_are_those_of_the_whole_model(ranks_2: list[dict[str, Any]], engine: str) -> None:
    gradients = Oracle(small(engine), [event.graph for event in sources()]).gradients()
    weights = build_model(small(engine)).state_dict()
    for result in ranks_2:
        found, unasked = result["norms"][engine]
        assert unasked is None
        assert list(found.gradient) == list(found.weight) == GROUPS
        assert found.gradient == pytest.approx(norms_of(gradients), rel=1e-4)
        assert found.weight == pytest.approx(norms_of(weights), rel=1e-6)
        assert found == ranks_2[0]["norms"][engine][0], "the same bits on all ranks"


def test_hybrid_shards_resume_bit_for_bit(ranks_4: list[dict[str, Any]]) -> None:
    results = [result["resumed"] for result in ranks_4]
    first = results[0]
    assert first["whole"].keys() == build_model(configuration(HYBRID)).state_dict().keys()
    assert same(first["whole"], first["resumed"])
    total = sum(value.numel() for value in first["whole"].values())
    held = [result["held"] for result in results]
    assert held[:2] == held[2:], "neighbours share a block"
    assert sum(held[:2]) == total
    assert max(first["files"]) < 1.1 * min(first["files"]), "blocks share the writing"
    # The last rank of a block gets the smaller half of odd lengths.
    assert held[0] / total == pytest.approx(0.5, abs=0.01)


def test_coalesced_reduces_once_per_step(ranks_2: list[dict[str, Any]]) -> None:
    for result in ranks_2:
        assert result["coalesced"] == 1
        assert result["buckets"] > 1, "what coalescing spares"


def test_fsdp2_reduces_gradients_only_after_the_last_micro_step(
    ranks_2: list[dict[str, Any]],
) -> None:
    assert [result["reduced"] for result in ranks_2] == [[False, True]] * 2


def test_all_ranks_start_from_rank_0(ranks_4: list[dict[str, Any]]) -> None:
    expected = small_model(seed=0).state_dict()
    for result in ranks_4:
        assert len(result["initial"]) == 3
        for weights in result["initial"]:
            assert same(weights, expected)
