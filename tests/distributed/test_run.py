"""Whole runs on two ranks: checkpoints, resuming, the record, the model at the end."""

import json
from pathlib import Path

import pytest

from bigtrk.disk.files import seal, unseal
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.records.run_folder import read_run
from bigtrk.reports.runs import routes
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.schedule import Plateau
from tests.distributed.ranks import run_all, run_ranks
from tests.distributed.runs import evaluated, settings, step_folders, steps, train
from tests.present import present


def test_damage_costs_the_steps_since_the_checkpoint_before(
    tmp_path: Path, graphs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    works = {}
    for folder in (whole, run):
        configuration = settings(graphs, folder, 3, {"name": "ddp"})
        training = configuration.training.model_copy(update={"checkpoint_every": 1})
        works[folder.name] = train, (configuration.model_copy(update={"training": training}),)
    run_all(2, works)
    assert step_folders(run) == ["latest.json", "step-00000005", "step-00000006"]
    (run / "checkpoints" / "step-00000006" / "shard-00001.safetensors").unlink()
    capfd.readouterr()
    run_ranks(2, train, configuration, run)
    printed = capfd.readouterr().out
    assert printed.count("step-00000006 is damaged: ") == 1
    assert "is damaged: shard-00001.safetensors is missing" in printed
    assert "continuing from step-00000005, written by DDP on 2 ranks" in printed
    assert steps(run) == steps(whole)
    assert step_folders(run)[0] == "damaged-step-00000006"


def never_so_good_again(run: Path) -> None:
    """Let the first checkpoint know a loss that no epoch will reach."""
    path = run / "checkpoints" / "step-00000002" / "manifest.json"
    content = unseal(path.read_bytes())
    plateau = content["progress"]["plateau"]
    content["progress"]["plateau"] = {**plateau, "best": 1e-9, "reductions": 1}
    path.write_bytes(seal(content))


def test_the_plateau_is_resumed(tmp_path: Path, graphs: Path) -> None:
    run = tmp_path / "run"
    plateau = {"schedule": "plateau", "plateau_patience": 0, "lr": 0.01}
    start = settings(graphs, run, 1, {"name": "ddp"})
    start = start.model_copy(update={"optimizer": OptimizerSettings.model_validate(plateau)})
    run_ranks(1, train, start)
    saved = last_good(run).checkpoint.progress
    (epoch,) = read_run(run).epochs
    assert saved.plateau == Plateau(present(epoch.validation).loss, 0, 0)
    never_so_good_again(run)
    run_ranks(1, train, start, run)
    rates = [lr for _, _, lr in steps(run)]
    assert rates == [0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025]


def test_the_record_reads_back_and_the_model_scores_alike_in_sectors(
    tmp_path: Path, graphs: Path
) -> None:
    run_ranks(2, train, settings(graphs, tmp_path / "run", 2, {"name": "ddp"}))
    run = read_run(tmp_path / "run")
    assert sorted(routes(run).values()) == [1, 2, 2, 2]
    assert [epoch.epoch for epoch in run.epochs] == [0, 1]
    assert all(step.pt_loss is not None and step.pt_loss > 0 for step in run.steps)
    shares = present(run.epochs[0].shares)
    assert shares.exchange > 0
    assert sum(shares.model_dump().values()) == pytest.approx(1)

    unseen = run_ranks(1, evaluated, tmp_path / "run", graphs / "graphs")[0]
    assert (unseen.events, unseen.events_trained_on) == (1, 0)
    last = run.epochs[-1].validation
    assert last
    assert unseen.edge_metrics.auc == pytest.approx(last.auc, rel=1e-6)
    assert unseen.edge_metrics.log_pt_error == pytest.approx(last.log_pt_error, rel=1e-6)
    in_sectors = run_ranks(2, evaluated, tmp_path / "run", graphs / "sectors")[0]
    assert (in_sectors.events, in_sectors.events_trained_on) == (3, 3)


def test_a_run_is_not_overwritten_nor_resumed_when_done_or_on_other_events(
    tmp_path: Path, graphs: Path
) -> None:
    run = tmp_path / "run"
    configuration = settings(graphs, run, 3, {"name": "ddp"})
    run_ranks(1, train, configuration)
    with pytest.raises(Exception, match="already holds a run; continue it with 'bigtrk resume"):
        run_ranks(1, train, configuration)
    with pytest.raises(Exception, match=r"has trained 3 epochs already; add training\.epochs=4"):
        run_ranks(1, train, configuration, run)
    content = json.loads((run / "run.json").read_text())
    content["config"]["data"]["events"] = 3
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(Exception, match=r"than it was trained on: event\d+ is missing"):
        run_ranks(1, train, configuration, run, "training.epochs=4")
