"""Real graphs in one job: many small ones whole, event 1000 in sectors, on four ranks."""

import json
from pathlib import Path

import pytest

from tests.programs import CHECKOUT, run_shell


@pytest.mark.slow
def test_small_events_whole_and_a_large_one_in_sectors(tmp_path: Path, testdata: Path) -> None:
    data = testdata / "data"
    run_shell(f"bigtrk build {data}/trackml_event1000 large", tmp_path)
    run_shell(f"bigtrk build --from heptrkx {data}/heptrkx_graphs small", tmp_path)
    run_shell(f"python -m partition {tmp_path}/large {tmp_path}/sectors --parts 4", CHECKOUT)
    train = f"OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 4 {CHECKOUT}/bigtrk/train.py"
    settings = "data.train=[small,sectors] data.validation=4 training.events_per_step=4"
    model = "model.hidden=16 model.layers=2 training.epochs=1 run.folder=run"
    run_shell(f"{train} {settings} {model}", tmp_path)
    run_shell(f"{train} --resume run training.epochs=2", tmp_path)
    report = json.loads(run_shell("bigtrk report run --json", tmp_path))["runs"][0]
    assert len(report["epochs"]) == 2
    # Beside three small ones event 1000 would make three ranks wait: it is shared.
    assert report["routes"].pop("event000001000") > 1
    assert set(report["routes"].values()) == {1}
    assert len(report["routes"]) == 76
