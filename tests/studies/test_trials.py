"""`bigtrk plan --choose --try`: what is tried, how it is measured, and which is chosen."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import CPU
from bigtrk.planning.choice import Trial
from bigtrk.studies import trials
from bigtrk.training.automatic import Limit, Option, Task, options
from bigtrk.training.fitting import GIB
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph, write_graphs
from tests.programs import Run, output_of, refusal_of

SMALL = ["model.hidden=8", "model.layers=1", "model.mlp_layers=1"]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trials") / "graphs"
    write_graphs(folder, [random_graph(seed, 300, 2_000 + seed) for seed in range(3)])
    return folder


def task_of(gib: float, world: int) -> Task:
    configuration = Configuration.model_validate({"model": {"hidden": 16, "layers": 2}})
    sizes = [EventSize(20_000, 400_000)]
    return Task(configuration, sizes, world, world, CPU, Limit(gib * GIB, 1), cuttable=True)


def test_the_first_that_fit_are_tried_in_few_numbers_of_sectors() -> None:
    tried = list(trials.shortlist(task_of(8, world=2)))
    ways = [(dict(one.candidate.values)["model.recompute"], one.cut.parts) for one in tried]
    assert ways == [("none", 2), ("layer", 2), ("chunk", 2)]  # more are merged where two fit
    assert {one.engine for one in tried} == {"ddp"}
    little = [one.memory for one in options(task_of(0.1, world=1))]
    scarce = task_of(min(little) / GIB * 1.02, world=1)
    tried = list(trials.shortlist(scarce))
    assert [one.cut for one in tried] == [(1, 1), (2, 1), (4, 1)]
    assert all(one.fits for one in tried)


@pytest.fixture
def asked(run_program: Run) -> Callable[..., tuple[int, str, str]]:
    def ask(*arguments: str) -> tuple[int, str, str]:
        command = ["bigtrk", "plan", "--choose", "--try", "--machine", "cpu", *SMALL, *arguments]
        return run_program(command)

    return ask


@pytest.mark.slow
def test_the_choice_is_what_trained_fastest(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_STEPS", 4)
    # None of these ends a trial, nor leaves it without its events.
    ended = ["data.events=1", "training.minutes=1e-9", "data.validation=1"]
    best = ["training.best.metric=auc", "training.best.patience=1"]
    options = ["--ranks", "2", "--memory", "9", "--json", *ended, *best]
    out = output_of(asked(str(graphs), *options))
    answer = json.loads(out)
    tried: list[dict[str, Any]] = answer["trials"]
    assert [row["parts"] for row in tried] == [2, 2, 2], "events were cut"
    assert all(row["seconds"] > 0 and 1e8 < row["peak"] < 9 * 2**30 for row in tried)
    fastest = min(tried, key=lambda row: float(row["seconds"]))
    assert answer["choice"] == {key: fastest[key] for key in answer["choice"]}
    assert f"--parts {fastest['sectors']}" in answer["commands"][0] or fastest["sectors"] == 1
    assert not list(graphs.parent.glob("graphs-in-*")), "trials leave nothing behind"


def test_a_trial_that_fails_is_told_and_not_chosen(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_STEPS", 4)
    options = ["model.recompute=chunk", "--ranks", "1"]
    err = refusal_of(asked(str(graphs), *options, "--memory", "9", "optimizer.lr=1e30"))
    assert "the loss became" in err
    assert "no choice of settings could be trained (1 tried); correct the cause and run this" in err


def test_trials_that_take_too_much_are_not_chosen(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = iter([99e9, 1e9, 99e9])

    def pretend(one: Option, *_: Any) -> Trial:
        return Trial(one, 1.0, next(peaks))

    monkeypatch.setattr(trials, "_train", pretend)
    known = ["--ranks", "1", "--memory", "9", "--json"]
    out = output_of(asked(str(graphs), *known))
    answer = json.loads(out)
    assert [row["peak"] for row in answer["trials"]] == [99e9, 1e9, 99e9]
    assert answer["choice"]["settings"]["model.recompute"] == "layer"
    peaks = iter([99e9] * 3)
    err = refusal_of(asked(str(graphs), *known))
    assert "no option fits into 98% of the 9.00 GiB of memory per rank (3 tried): " in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "100", "--edges", "1000", "--ranks", "2"], "name folders of graphs"),
        (["GRAPHS", "--ranks", "8"], "needs all 8 ranks on this host"),
    ],
)
def test_what_cannot_be_tried_is_refused(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], options: list[str], said: str
) -> None:
    arguments = [str(graphs) if one == "GRAPHS" else one for one in options]
    err = refusal_of(asked(*arguments, "--memory", "9"))
    assert said in err
    assert len(err.splitlines()) == 1
