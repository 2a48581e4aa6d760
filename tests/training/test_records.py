"""The files of a real run read back as the records that the trainer and the evaluation built."""

from pathlib import Path

import pytest

from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.metrics import EpochRecord, MetricsRecord, StepRecord, ValidationRecord
from bigtrk.records.run_folder import append_metrics, read_run
from bigtrk.training import run as open_runs
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.evaluation.evaluate import evaluate_run
from bigtrk.training.settings import Configuration
from tests.distributed.runs import fit, settings, write_events


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[MetricsRecord]:
    """The records as they are built, which are written as ever."""
    found: list[MetricsRecord] = []

    def append(folder: Path, record: MetricsRecord) -> None:
        found.append(record)
        append_metrics(folder, record)

    monkeypatch.setattr(open_runs, "append_metrics", append)
    return found


def configuration(folder: Path) -> Configuration:
    """One epoch with all that a record may hold: norms, pT, validation on the way."""
    chosen = settings(folder, folder / "run", 1, {"name": "ddp"})
    training = {"norms_every": 1, "validate_minutes": 1e-9}
    return chosen.model_copy(update={"training": chosen.training.model_copy(update=training)})


def test_what_was_built_is_what_is_read(tmp_path: Path, built: list[MetricsRecord]) -> None:
    write_events(tmp_path)
    chosen, ranks = configuration(tmp_path), Ranks(0, 1, 0, 1, "test")
    events = Events(*split_validation(chosen.data.train, 1))
    with process_group(ranks):
        fit(chosen, ranks, events, None)
        evaluation = evaluate_run(tmp_path / "run", [tmp_path / "graphs"], None, ranks)
    run = read_run(tmp_path / "run")
    assert run.steps == tuple(line for line in built if isinstance(line, StepRecord))
    assert run.epochs == tuple(line for line in built if isinstance(line, EpochRecord))
    assert run.validations == tuple(line for line in built if isinstance(line, ValidationRecord))
    assert [len(run.steps), len(run.epochs), len(run.validations)] == [2, 1, 2]
    assert run.epochs[0].lr == run.steps[-1].lr
    assert run.evaluations == (evaluation,)
    assert run.record.config == chosen.model_dump(mode="json")
    assert None not in (run.record.bigtrk, run.record.started, run.record.machine.host)
    assert (run.record.data.train_events, run.record.data.validation_events) == (4, 1)
