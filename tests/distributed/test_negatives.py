"""Runs that train some false edges only: alike at every world size and by every engine."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_all, run_ranks
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


# Slow: zero3 does more than zero1 does.
OTHER_ENGINES = ["FSDP2", pytest.param("zero1", marks=pytest.mark.slow), "zero3"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, events: Path) -> Path:
    """Runs of each method on 1, 2 and 3 ranks; on two those of engines, of all false edges, and of
    as many as there are; and one that goes on on three.
    """
    folder = tmp_path_factory.mktemp("runs")

    def run(name: str, negatives: dict[str, float] = SOME, **options: Any) -> Any:
        return fit_all, (settings(events, folder / name, negatives, **options),)

    def whole(world_size: int) -> dict[str, Any]:
        return {m: run(f"{world_size} {m}", method=m) for m in METHODS}

    halted = settings(events, folder / "halted", SOME)
    halted = halted.model_copy(
        update={"training": halted.training.model_copy(update={"minutes": 1e-6})}
    )
    of_two = {
        **{engine: run(engine, engine=engine) for engine in ("FSDP2", "zero3")},
        "all": run("all", {}),
        "chosen": run("chosen", {"hard": 1000, "easy": 1}),
        "halted": (fit_all, (halted,)),
    }
    run_all(1, whole(1))
    run_all(2, {**whole(2), **of_two})
    on = settings(events, folder / "halted", SOME)
    run_all(3, {**whole(3), "on": (fit_all, (on, folder / "halted"))})
    return folder


@pytest.fixture(scope="module")
def by_ddp(runs: Path) -> list[float]:
    """The losses of a run on two ranks, to compare others with."""
    return losses(runs / "2 wedges")


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_the_same_at_every_world_size(runs: Path, method: str) -> None:
    """Three parts make a step: of two ranks one has two of them, of three each one."""
    alone = losses(runs / f"1 {method}")
    assert len(alone) >= 4
    for world_size in (2, 3):
        assert losses(runs / f"{world_size} {method}") == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("engine", OTHER_ENGINES)
def test_every_engine_trains_alike(
    events: Path, runs: Path, by_ddp: list[float], engine: str
) -> None:
    if not (runs / engine).exists():
        run_ranks(2, fit_all, settings(events, runs / engine, SOME, engine=engine))
    assert losses(runs / engine) == pytest.approx(by_ddp, rel=1e-4)


def test_as_many_as_there_are_train_as_all_do(runs: Path, by_ddp: list[float]) -> None:
    assert losses(runs / "chosen") == pytest.approx(losses(runs / "all"), rel=1e-6)
    assert by_ddp != pytest.approx(losses(runs / "all"), rel=1e-3)


def test_it_goes_on_in_mid_epoch_on_other_ranks(runs: Path, by_ddp: list[float]) -> None:
    assert losses(runs / "halted") == pytest.approx(by_ddp, rel=1e-5)
