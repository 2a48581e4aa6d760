"""Runs in mini-batches: one training at every world size; validation on the way; a time limit."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigtrk.reports import read_run
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import run_all
from tests.distributed.runs import fit_all, losses, write_in_sectors

PARTS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three events, in `graphs` and in four `sectors`."""
    folder = tmp_path_factory.mktemp("events")
    graphs = [random_graph(seed, 50 + 20 * seed, 300) for seed in range(3)]
    write_in_sectors(folder, graphs, PARTS)
    return folder


METHODS: dict[str, dict[str, Any]] = {
    "shadow": {
        "data": "graphs",
        "sampling": {"method": "shadow", "depth": 2, "fanout": 3, "batch_size": 25, "bulk": 2},
        "training": {},
    },
    "sectors": {
        "data": "sectors",
        "sampling": {"method": "sectors"},
        "training": {"events_per_step": 3},
    },
}


def settings(data: Path, run: Path, method: str, **training: Any) -> Configuration:
    chosen = METHODS[method]
    return Configuration.model_validate(
        {
            "data": {"train": [data / chosen["data"]], "validation": 1},
            "model": {"hidden": 8, "layers": 2},
            "sampling": chosen["sampling"],
            "training": {"epochs": 2, **chosen["training"], **training},
            "run": {"folder": run},
        }
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Runs of each method on 1, 2 and 3 ranks, and one of three steps on two ranks, the others on
    one and three; of ShaDow also one that is validated on the way, and one that ends in time.
    """
    folder = tmp_path_factory.mktemp("runs")

    def made(name: str, method: str, **training: Any) -> Configuration:
        return settings(data, folder / name / method, method, **training)

    def whole(world_size: int) -> dict[str, Any]:
        return {m: (fit_all, (made(str(world_size), m),)) for m in METHODS}

    halted = {m: made("halted", m, minutes=1e-6) for m in METHODS}
    others = {
        "often": (fit_all, (made("often", "shadow", validate_minutes=1e-9),)),
        "in time": (fit_all, (made("in time", "shadow", minutes=1e-6),)),
    }
    begun = {f"halted {m}": (fit_all, (one,)) for m, one in halted.items()}
    run_all(2, {**whole(2), **others, **begun})
    on = {f"on {m}": (fit_all, (one, folder / "halted" / m)) for m, one in halted.items()}
    run_all(1, {**whole(1), **on})
    to_the_end = {m: (fit_all, (made("halted", m), folder / "halted" / m)) for m in METHODS}
    run_all(3, {**whole(3), **{f"on {m}": one for m, one in to_the_end.items()}})
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_the_same_at_every_world_size(runs: Path, method: str) -> None:
    alone, shared = losses(runs / "1" / method), losses(runs / "3" / method)
    # ShaDow: 50 and 70 nodes in batches of 25; sectors: 8 of them in steps of 3.
    assert len(alone) == 2 * {"shadow": 5, "sectors": 3}[method]
    assert shared == pytest.approx(alone, rel=1e-5)
    assert losses(runs / "2" / method) == pytest.approx(alone, rel=1e-5)
    scores = [read_run(runs / name / method).epochs[-1].validation for name in ("1", "3")]
    assert scores[0]
    assert scores[1]
    assert scores[1].loss == pytest.approx(scores[0].loss, rel=1e-5)


def test_validation_on_the_way_changes_nothing(runs: Path) -> None:
    often = runs / "often" / "shadow"
    assert losses(often) == losses(runs / "2" / "shadow")
    lines = (often / "metrics.jsonl").read_text().splitlines()
    found = [r for r in map(json.loads, lines) if r["kind"] == "validation"]
    assert [record["step"] for record in found] == list(range(10))
    assert 0 < found[0]["seconds"] < found[1]["seconds"]
    assert all(record["validation"]["loss"] > 0 for record in found)


def test_a_run_ends_in_time(runs: Path) -> None:
    folder = runs / "in time" / "shadow"
    run = read_run(folder)
    assert [epoch.steps for epoch in run.epochs] == [1]
    assert run.epochs[0].validation
    assert (folder / "model.safetensors").exists()
    assert last_good(folder).checkpoint.progress.cursor == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_run_goes_on_in_mid_epoch_on_other_ranks(runs: Path, method: str) -> None:
    """Three steps run on two ranks, the others on one and three."""
    run, whole = runs / "halted" / method, runs / "2" / method
    assert losses(run) == pytest.approx(losses(whole), rel=1e-5)
    assert len(losses(run)) == len(losses(whole))
    for one, other in zip(read_run(run).epochs, read_run(whole).epochs, strict=True):
        assert (one.steps, one.events, one.edges) == (other.steps, other.events, other.edges)
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5)
