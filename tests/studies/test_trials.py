"""`bigtrk plan --choose --try`: what is tried, how it is measured, and which is chosen."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import CPU
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.parallel.routing import Cut
from bigtrk.planning.choice import Given, Trial
from bigtrk.studies import trials
from bigtrk.training.automatic.candidates import Candidate
from bigtrk.training.automatic.choice import Choice, choose
from bigtrk.training.automatic.margin import Limit
from bigtrk.training.automatic.prediction import Prediction, Task
from bigtrk.training.costs import make_cost
from bigtrk.training.data.event_source import open_events
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph
from tests.programs import run_here

SMALL = ["model.hidden=8", "model.layers=1", "model.mlp_layers=1"]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trials") / "graphs"
    made = [random_graph(seed, 300, 2_000 + seed) for seed in range(3)]
    for graph in made:
        write_graph(folder, graph, {"nodes": graph.n_nodes, "edges": graph.n_edges})
    write_manifest(folder, "graphs", {}, [graph.name for graph in made])
    return folder


LIMIT = Limit(10e9)


def predicted(
    way: str,
    sectors: int,
    seconds: float | None,
    parts: int | None = None,
    memory: float = 1e9,
) -> Prediction:
    candidate = Candidate((("model.recompute", way),))
    return Prediction(candidate, sectors, memory, seconds, Cut(parts or sectors, parts or sectors))


def tried_in_turn(
    considered: list[Prediction], excess: Callable[[Prediction], float] = lambda _: 1.0
) -> list[Prediction]:
    """Returns the shortlist if each candidate takes `excess` times the memory predicted."""
    tried: list[Trial] = []
    for one in trials.shortlist(Choice(considered[0], considered), tried, LIMIT):
        tried += [Trial(one, one.seconds, excess(one) * one.memory)]
    return [one.prediction for one in tried]


def test_what_is_close_in_prediction_is_tried_once_for_each_layout() -> None:
    fast, close, far = predicted("none", 1, 1.0), predicted("layer", 1, 1.5), predicted("a", 1, 1.7)
    alike = predicted("chunk", 2, 1.2), predicted("chunk", 4, 1.2, parts=2)
    considered = [far, predicted("b", 1, None), *alike, close, fast]
    assert tried_in_turn(considered) == [fast, alike[0], close]
    many = [predicted(f"{i}", 1, 1.0 + i / 100) for i in range(20)]
    assert tried_in_turn(many) == many[:8]
    sectors = [predicted("none", 1 << i, 1.0 + i / 100) for i in range(6)]
    assert tried_in_turn([*sectors, close]) == [*sectors[:3], close]


def test_what_takes_too_much_makes_room_for_what_will_not() -> None:
    """The first of those that differ in sectors alone fails, and two of about as much memory are
    not tried; where no other is as fast, what is predicted to be twice as slow is tried.
    """
    needs = [9.5e9, 9e9, 8.95e9, 5e9, 4e9, 3e9]
    many = [predicted("none", 1 << i, 1.0 + i / 100, memory=b) for i, b in enumerate(needs)]
    slow, slower = predicted("layer", 1, 2.0), predicted("layer", 1, 3.5)
    found = tried_in_turn([*many, slow, slower], lambda one: 1.1 if one.memory > 6e9 else 1.0)
    assert found == [many[0], *many[3:]]
    found = tried_in_turn([*many[:3], slow, slower], lambda one: 1.1 if one.memory > 6e9 else 1.0)
    assert found == [many[0], slow]


def test_of_sectors_the_fastest_the_fewest_and_the_next_fastest_are_tried() -> None:
    sectors = [predicted("none", 1 << i, 3.0 - i / 2) for i in range(5)]
    other = predicted("layer", 1, 1.2)
    assert tried_in_turn([*sectors, other]) == [sectors[4], sectors[0], other, sectors[3]]


def test_short_steps_are_more() -> None:
    assert [trials.steps(seconds) for seconds in (0.01, 0.25, 0.4, 0.5, 60)] == [12, 8, 5, 4, 4]


@pytest.fixture
def asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def ask(*arguments: str) -> tuple[int, str, str]:
        command = ["bigtrk", "plan", "--choose", "--try", "--machine", "cpu", *SMALL, *arguments]
        return run_here(command, monkeypatch, capsys)

    return ask


@pytest.mark.slow
def test_the_choice_is_what_trained_fastest(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_PREDICTED", 100.0)
    options = ["model.recompute=chunk", "--ranks", "2", "--memory", "9", "--json"]
    status, out, err = asked(str(graphs), *options)
    assert status == 0, err
    answer = json.loads(out)
    tried: list[dict[str, Any]] = answer["trials"]
    assert len(tried) == 3, "three layouts of the same settings"
    assert len({row["parts"] for row in tried}) > 1, "events were cut for some of them"
    assert all(row["took"] > 0 and 1e8 < row["peak"] < 9 * 2**30 for row in tried)
    fastest = min(tried, key=lambda row: float(row["took"]))
    assert answer["choice"] == {key: fastest[key] for key in answer["choice"]}
    assert f"--parts {fastest['sectors']}" in answer["commands"][0] or fastest["sectors"] == 1
    assert not list(graphs.parent.glob("graphs-in-*")), "trials leave nothing behind"


def test_where_the_fastest_take_too_much_the_smallest_are_tried(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def pretend(_: Any, one: Prediction) -> Trial:
        """Takes less memory only the second time that candidates are tried."""
        tried.append(one)
        first = one.candidate.values == tried[0].candidate.values
        return Trial(one, 1.0, 99e9 if first else 1e9)

    monkeypatch.setattr(trials, "_PREDICTED", 1.0)
    monkeypatch.setattr(trials._Bench, "train", pretend)
    status, out, err = asked(str(graphs), "--ranks", "2", "--memory", "9", "--json")
    assert status == 0, err
    answer = json.loads(out)
    fitting = sorted(row["memory"] for row in answer["candidates"] if row["seconds"] is not None)
    others = [row["memory"] for row in answer["trials"][1:]]
    assert others[0] in fitting[:2]
    assert others == sorted(others)
    assert answer["choice"]["memory"] == min(
        row["memory"] for row in answer["trials"] if row["peak"] == 1e9
    )


def test_where_nothing_tried_fits_the_margin_of_predictions_is_left(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def pretend(bench: Any, one: Prediction) -> Trial:
        limit = bench.task.limit
        limits.append(limit.share)
        return Trial(one, 1.0, 1.02 * limit.budget)

    monkeypatch.setattr(trials, "_PREDICTED", 1.0)
    monkeypatch.setattr(trials._Bench, "train", pretend)
    status, out, err = asked(str(graphs), "--ranks", "1", "--memory", "2", "--json")
    assert status == 0, err
    answer = json.loads(out)
    margin = pytest.approx(answer["budget_bytes"] / answer["memory_bytes"], abs=1e-3)
    assert (limits[0], limits[-1]) == (0.98, margin)
    assert f"training.memory_gib={answer['budget_bytes'] / 2**30}" in answer["commands"][-1]


def test_the_memory_of_events_that_were_not_tried_counts(graphs: Path) -> None:
    given = Given([], [], [graphs], allow_bf16=False)
    sizes = [EventSize(300, 2_000), EventSize(300_000, 2_000_000)]
    configuration = Configuration.model_validate({"model": {"hidden": 8, "layers": 1}})
    task = Task(configuration, sizes, 1, 1, CPU, LIMIT)
    bench = trials._Bench(Path(), task, given, open_events([graphs]), trials.by_torchrun)
    [one] = [one for one in choose(task).considered if one.sectors == 1][:1]
    more = bench._excess_of_all(one)
    alone = make_cost(one.candidate.configured(configuration), 1, 1, CPU, events=3)
    largest = max(source.size.edges for source in open_events([graphs]))
    assert more > 1.5
    assert more == pytest.approx(one.memory / alone.memory(EventSize(300, largest), 1, 1).total)


def test_a_trial_that_fails_is_told_and_not_chosen(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has passed the memory that a user gave, or ended with an error."""
    monkeypatch.setattr(trials, "_PREDICTED", 1.0)
    options = ["model.recompute=chunk", "--ranks", "1"]
    status, out, err = asked(str(graphs), *options, "--memory", "9", "optimizer.lr=1e30")
    assert (status, out) == (2, "")
    assert "the loss became" in err
    assert "none of 1 candidates could be trained; the first ended with: " in err


def test_a_trial_trains_all_its_steps_whatever_ends_the_run(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the metric of a validation that no trial has, and with more than the one event."""
    monkeypatch.setattr(trials, "_PREDICTED", 1.0)
    ended = ["data.events=1", "training.minutes=1e-9", "data.validation=1"]
    best = ["training.best.metric=auc", "training.best.patience=1"]
    options = ["model.recompute=chunk", "--ranks", "1", "--memory", "9", "--json"]
    status, out, err = asked(str(graphs), *options, *ended, *best)
    assert status == 0, err
    [tried] = json.loads(out)["trials"]
    assert tried["took"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "100", "--edges", "1000", "--ranks", "2"], "name folders"),
        (["GRAPHS", "--ranks", "8"], "which has 4 of the 8 ranks"),
    ],
)
def test_what_cannot_be_tried_is_refused(
    graphs: Path, asked: Callable[..., tuple[int, str, str]], options: list[str], said: str
) -> None:
    arguments = [str(graphs) if one == "GRAPHS" else one for one in options]
    status, out, err = asked(*arguments, "--memory", "9")
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
