"""A search with real trainings, on ranks that a launcher of the user's choice starts."""

import json
from pathlib import Path

import pytest

from bigtrk.records.run_folder import read_run
from bigtrk.training.checkpoint.folder import last_good
from tests.distributed.runs import write_events
from tests.programs import run_shell

SPACE = """\
metric: train_loss
space:
  optimizer.lr: {low: 0.001, high: 0.1}
pruning: null
"""
# Every event is stored in two sectors; with FSDP2 each rank has weights of its own to keep.
COMMON = "model.hidden=8 model.layers=2 training.epochs=2 training.routing=stored engine.name=fsdp2"
LAUNCHER = "torchrun --standalone --nproc-per-node 2"


@pytest.mark.slow
def test_trials_train_on_the_ranks_that_the_users_launcher_starts(tmp_path: Path) -> None:
    write_events(tmp_path)
    (tmp_path / "space.yaml").write_text(SPACE)
    command = f'bigtrk search space.yaml sectors {COMMON} --trials 2 --launcher "{LAUNCHER}"'
    run_shell(command, tmp_path)
    trials = json.loads((tmp_path / "search" / "result.json").read_text())["trials"]
    assert sorted(trial["number"] for trial in trials) == [0, 1]
    for trial in trials:
        run = read_run(tmp_path / "search" / f"trial{trial['number']:04d}")
        assert (run.record.world_size, run.record.launcher) == (2, "torchrun")
        assert run.record.config["optimizer"]["lr"] == trial["settings"]["optimizer.lr"]
        assert (trial["state"], trial["epochs"]) == ("complete", 2)
        assert trial["value"] == min(epoch.train_loss or 0.0 for epoch in run.epochs)
        assert len(run.steps) == 4
        for step in run.steps:
            assert set(step.routes.values()) == {2}
            assert step.ranks == {}, "as many ranks as sectors"
        for shard in last_good(run.folder).checkpoint.shards:
            assert {updates for _, _, updates in shard.pieces.values()} == {len(run.steps)}
        assert len(last_good(run.folder).checkpoint.shards) == 2
