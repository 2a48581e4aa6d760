"""Runs that train some false edges only: alike at every world size and by every engine."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, fit_all, losses, write_events

SOME: dict[str, float] = {"hard": 0.5, "easy": 0.5}
METHODS: dict[str, dict[str, Any]] = {
    "wedges": {"method": "wedges", "wedges": 3},
    "sectors": {"method": "sectors"},
}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three events, of which two are trained on, in sectors where a method takes them."""
    folder = tmp_path_factory.mktemp("events")
    write_events(folder, 3)
    return folder


def settings(
    events: Path,
    run: Path,
    negatives: dict[str, float],
    method: str = "wedges",
    engine: str = "DDP",
) -> Configuration:
    data = "sectors" if method == "sectors" else "graphs"
    return Configuration.model_validate(
        {
            "data": {"train": [events / data], "validation": 1},
            "model": {"name": "mlp", "hidden": 8},
            "sampling": METHODS[method],
            "negatives": negatives,
            "optimizer": {"lr": 0.01},
            "engine": ENGINES[engine],
            "training": {"epochs": 2, "events_per_step": 3, "class_balance": "equal"},
            "run": {"folder": run},
        }
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_the_same_at_every_world_size(tmp_path: Path, events: Path, method: str) -> None:
    """Three parts make a step: of two ranks one has two of them, of three each one."""
    for world_size in (1, 2, 3):
        run_ranks(world_size, fit_all, settings(events, tmp_path / str(world_size), SOME, method))
    alone = losses(tmp_path / "1")
    assert len(alone) >= 4
    for world_size in (2, 3):
        assert losses(tmp_path / str(world_size)) == pytest.approx(alone, rel=1e-5)


@pytest.fixture(scope="module")
def by_ddp(tmp_path_factory: pytest.TempPathFactory, events: Path) -> list[float]:
    """The losses of a run on two ranks, to compare others with."""
    run = tmp_path_factory.mktemp("by") / "ddp"
    run_ranks(2, fit_all, settings(events, run, SOME))
    return losses(run)


# Slow: zero3 does more than zero1 does.
@pytest.mark.parametrize(
    "engine", ["FSDP2", pytest.param("zero1", marks=pytest.mark.slow), "zero3"]
)
def test_every_engine_trains_alike(
    tmp_path: Path, events: Path, by_ddp: list[float], engine: str
) -> None:
    run_ranks(2, fit_all, settings(events, tmp_path / engine, SOME, engine=engine))
    assert losses(tmp_path / engine) == pytest.approx(by_ddp, rel=1e-4)


def test_as_many_as_there_are_train_as_all_do(
    tmp_path: Path, events: Path, by_ddp: list[float]
) -> None:
    run_ranks(2, fit_all, settings(events, tmp_path / "all", {}))
    run_ranks(2, fit_all, settings(events, tmp_path / "chosen", {"hard": 1000, "easy": 1}))
    assert losses(tmp_path / "chosen") == pytest.approx(losses(tmp_path / "all"), rel=1e-6)
    assert by_ddp != pytest.approx(losses(tmp_path / "all"), rel=1e-3)


def test_it_goes_on_in_mid_epoch_on_other_ranks(
    tmp_path: Path, events: Path, by_ddp: list[float]
) -> None:
    run = tmp_path / "run"
    halted = settings(events, run, SOME)
    halted = halted.model_copy(
        update={"training": halted.training.model_copy(update={"minutes": 1e-6})}
    )
    run_ranks(2, fit_all, halted)
    run_ranks(3, fit_all, settings(events, run, SOME), run)
    assert losses(run) == pytest.approx(by_ddp, rel=1e-5)
