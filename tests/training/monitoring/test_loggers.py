"""Tests what TensorBoard, Weights & Biases and MLflow get of a run's records."""

import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from bigtrk.config import flat
from bigtrk.errors import InputError
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.live import scalars
from bigtrk.records.metrics import MetricsRecord
from bigtrk.records.run_folder import write_run_record
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.monitoring.loggers import open_logger
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph, write_graphs
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import fit
from tests.reports.run_folders import epoch_record, run_record, step_record, validation_record


class FakeRun:
    def __init__(self) -> None:
        self.axes: dict[str, str] = {}
        self.logged: list[dict[str, Any]] = []

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, content: dict[str, Any]) -> None:
        self.logged.append(content)


class FakeWandb(ModuleType):
    def __init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)
        self.started: list[dict[str, Any]] = []
        self.run = FakeRun()

    def init(self, **options: Any) -> FakeRun:
        self.started.append(options)
        return self.run


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def run_folder(folder: Path, started: str) -> Path:
    folder.mkdir()
    write_run_record(folder, run_record(config={"a": 1}, started=started))
    return folder


def test_scalars_are_the_numbers_that_are_known() -> None:
    found = dict(scalars(epoch_record(3)))
    assert found["epoch/validation/auc"] == 0.98577
    assert found["epoch/shares/compute"] == 0.85
    assert "epoch/validation/purity" not in found
    assert dict(scalars(step_record(0, loss=None))).keys() & {"step/loss", "step/routes"} == set()


def test_wandb_gets_the_configuration_and_every_record(tmp_path: Path, wandb: FakeWandb) -> None:
    first = run_folder(tmp_path / "0007", "now")
    with open_logger("wandb", first) as log:
        log(step_record(4))
        log(epoch_record(1))
        log(validation_record(7, 2.5, auc=0.9))
    axes = {"step/*": "step", "epoch/*": "epoch", "validation/*": "step"}
    assert wandb.run.axes == axes
    step, epoch, validation = wandb.run.logged
    assert (step["step"], step["step/lr"]) == (4, 0.001)
    assert (epoch["epoch"], epoch["epoch/train_loss"]) == (1, 0.6)
    expected = {"step": 7, "validation/seconds": 2.5, "validation/validation/auc": 0.9}
    assert validation == expected
    # A resumed run goes on with its own.
    for folder in (first, run_folder(tmp_path / "b", "now")):
        with open_logger("wandb", folder):
            pass
    write_run_record(first, run_record(started="later"))
    with open_logger("wandb", first):
        pass
    started, again, *others = wandb.started
    assert (started["name"], started["config"], started["resume"]) == ("0007", {"a": 1}, "allow")
    assert started == again
    assert len({one["id"] for one in (started, *others)}) == 3


class FakeMlflow(ModuleType):
    """Stands for MLflow's module: it knows its runs by number, and one of them is active."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.__spec__ = ModuleSpec("mlflow", None)
        self.runs: list[dict[str, Any]] = []
        self.active = -1

    def set_experiment(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(experiment_id=f"that of {name}")

    def search_runs(self, experiments: list[str], wanted: str, output_format: str) -> list[Any]:
        assert (experiments, output_format) == (["that of bigtrk"], "list")
        return [
            SimpleNamespace(info=SimpleNamespace(run_id=number))
            for number, run in enumerate(self.runs)
            if wanted in [f"tags.{tag} = '{value}'" for tag, value in run["tags"].items()]
        ]

    def end_run(self) -> None:
        self.active = -1

    def start_run(self, run_id: int | None = None, **given: Any) -> None:
        assert self.active == -1, "MLflow has one active run"
        if run_id is None:
            run_id = len(self.runs)
            self.runs.append({**given, "params": {}, "metrics": []})
        self.active = run_id

    def log_params(self, params: dict[str, str]) -> None:
        known = self.runs[self.active]["params"]
        assert len(params) <= 100
        assert not known.keys() & params.keys(), "MLflow refuses other values"
        assert all(set("*[]?!:").isdisjoint(key) for key in params)
        assert all(len(value) <= 500 for value in params.values())
        known.update(params)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.runs[self.active]["metrics"].append((step, metrics))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return fake


def test_mlflow_gets_the_configuration_and_every_record(tmp_path: Path, mlflow: FakeMlflow) -> None:
    """A resumed run continues its own."""
    factors = {f"layers.{n}.*": 0.1 for n in range(50)}
    settings = Configuration.model_validate(
        {"training": {"lr_factors": factors}, "data": {"train": [tmp_path / ("x" * 600)]}}
    )
    first = tmp_path / "0007"
    first.mkdir()
    write_run_record(first, run_record(config=settings.model_dump(mode="json")))
    records: list[MetricsRecord] = [step_record(4), epoch_record(1), validation_record(7, 2.5)]
    for folder in (first, run_folder(tmp_path / "b", "now"), first):
        with open_logger("mlflow", folder) as log:
            for record in records:
                log(record)
        assert mlflow.active == -1
    run, other = mlflow.runs
    assert run["run_name"] == "0007"
    assert len(run["params"]) == len(flat(settings.model_dump(mode="json"))) > 100
    assert run["params"]["training.lr_factors.layers.7._"] == "0.1"
    logged = [
        (place, dict(scalars(record))) for place, record in zip((4, 1, 7), records, strict=True)
    ]
    assert run["metrics"] == [*logged, *logged]
    assert (other["metrics"], other["params"]) == (logged, {"a": "1"})


def test_tensorboard_draws_every_record_at_its_step_or_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[tuple[str, float, int]] = []
    flushed: list[int] = []
    writer = SimpleNamespace(
        add_scalar=lambda *point: points.append(point), flush=lambda: flushed.append(len(points))
    )
    module = SimpleNamespace(SummaryWriter=lambda _: writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with open_logger("tensorboard", tmp_path) as log:
        log(validation_record(7, 2.5, auc=0.9))
        log(epoch_record(3, train_loss=0.4))
    expected = [("validation/seconds", 2.5, 7), ("validation/validation/auc", 0.9, 7)]
    assert points[:2] == expected
    assert ("epoch/train_loss", 0.4, 3) in points
    assert flushed == [2, len(points)]


def configuration(folder: Path) -> Configuration:
    """Two whole events, one epoch of one step."""
    write_graphs(folder / "graphs", [random_graph(seed, 20, 60) for seed in range(2)])
    return Configuration.model_validate(
        {
            "data": {"train": [folder / "graphs"], "validation": 0},
            "model": {"hidden": 8, "layers": 1},
            "training": {"epochs": 1, "events_per_step": 2},
            "run": {"folder": folder / "run", "loggers": ["wandb"]},
        }
    )


class Away(FakeWandb):
    def init(self, **_: Any) -> FakeRun:
        raise OSError("no route to host")


def train(ranks: Ranks, settings: Configuration) -> list[Any]:
    """Trains with a logger that does not open, in a folder that holds a file, then with one that
    does. Returns the line that the first ends with, and what is logged from this rank.
    """
    run, found = Path(str(settings.run.folder)), []
    for fake in (Away(), FakeWandb()):
        sys.modules["wandb"] = fake
        try:
            fit(settings, ranks, Events(*split_validation(settings.data.train, 0)), None)
        except InputError as error:
            found.append(str(error))
            torch.distributed.barrier()  # the first rank has let go of the folder
            assert [path.name for path in run.glob("*")] == ["notes.txt"]
            torch.distributed.barrier()
    return [*found, *(min(content) for content in fake.run.logged)]


def test_the_first_rank_logs_and_a_logger_that_does_not_open_ends_all(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    line = (
        "rank 0: run.loggers: wandb cannot be opened (no route to host); check its service, or "
        "leave it out"
    )
    first, second = run_ranks(2, train, configuration(tmp_path))
    assert first == [line, "step", "epoch"]
    assert second == [line]


@pytest.fixture(autouse=True)
def _warnings_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigtrk.console._warned", set())


def test_a_service_that_is_away_for_a_while_is_warned_of_once(
    tmp_path: Path, wandb: FakeWandb, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = wandb.run.log

    def log(content: dict[str, Any]) -> None:
        if content["step"] < 2:
            raise OSError("no route to host")
        taken(content)

    wandb.run.log = log  # type: ignore[method-assign]
    with open_logger("wandb", run_folder(tmp_path / "0007", "now")) as given:
        for step in range(3):
            given(step_record(step))
    assert [content["step"] for content in wandb.run.logged] == [2]
    (warning,) = capsys.readouterr().err.splitlines()
    assert "wandb refused a record (no route to host); the training is not affected" in warning


def test_a_service_that_does_not_answer_is_not_waited_for(
    tmp_path: Path,
    wandb: FakeWandb,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = threading.Event()
    run = run_folder(tmp_path / "0007", "now")
    wandb.run.log = lambda _: answers.wait()  # type: ignore[assignment, method-assign]
    try:
        with open_logger("wandb", run) as log:
            log(step_record(0))
            monkeypatch.setattr("bigtrk.training.monitoring.loggers.PATIENCE", 0.01)
        monkeypatch.setattr(wandb, "init", lambda **_: answers.wait())
        with pytest.raises(InputError, match="wandb cannot be opened"):
            open_logger("wandb", run).__enter__()
    finally:
        answers.set()
    assert "has not taken all records" in capsys.readouterr().err


def test_training_does_not_start_without_its_logger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigtrk.training.monitoring.loggers.find_spec", lambda _: None)
    settings = configuration(tmp_path)
    events = Events(*split_validation(settings.data.train, 0))
    ranks = Ranks(0, 1, 0, 1, "test")
    with process_group(ranks), pytest.raises(InputError, match="wandb is not installed"):
        fit(settings, ranks, events, None)
    assert not (tmp_path / "run").exists()
