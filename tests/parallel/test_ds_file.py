"""DeepSpeed's files are checked before DeepSpeed ignores what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from bigtrk.parallel.engines.ds_file import check_drops_steps, load_ds_config, with_bucket_of
from bigtrk.parallel.settings import OptimizerSettings
from tests.programs import run_here


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_shipped_files_are_complete(stage: int) -> None:
    content = load_ds_config(f"zero{stage}", OptimizerSettings(gradient_clipping=0.5))
    assert content["zero_optimization"]["stage"] == stage
    assert content["gradient_clipping"] == 0.5
    assert content["gradient_accumulation_steps"] == 1


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"zero_optimisation": {"stage": 1}}, "did you mean 'zero_optimization'"),
        ({"zero_optimization": {"stge": 1}}, "unknown key 'zero_optimization.stge'; did you mean"),
        ({"zero_optimization": {"stage": "x"}}, "zero_optimization.stage: "),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"devise": "cpu"}}},
            "zero_optimization.offload_optimizer.devise: ",
        ),
        (
            {
                "zero_optimization": {
                    "stage": 3,
                    "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"},
                }
            },
            "zero_optimization.offload_optimizer.device is nvme",
        ),
        (
            {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}},
            "remove 'zero_optimization.zero_hpz_partition_size'",
        ),
        ({"train_batch_size": 8}, "remove 'train_batch_size'; bigtrk sets it from"),
        ({"optimizer": {"type": "Adam"}}, "remove 'optimizer'"),
        (["stage", 1], "must be a JSON object"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: Any, named: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        load_ds_config(str(path), OptimizerSettings())
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_name_suggests_a_shipped_one() -> None:
    with pytest.raises(InputError, match="no file 'zero_1'; did you mean 'zero1'"):
        load_ds_config("zero_1", OptimizerSettings())


def without_norm(folder: Path) -> str:
    path = folder / "mine.json"
    section = {"stage": 2, "compute_grad_norm": False}
    path.write_text(json.dumps({"zero_optimization": section}))
    return str(path)


def test_clipping_needs_the_norm(tmp_path: Path) -> None:
    name = without_norm(tmp_path)
    load_ds_config(name, OptimizerSettings())
    named = f"{name}: remove 'zero_optimization.compute_grad_norm'.*optimizer.gradient_clipping=0"
    with pytest.raises(InputError, match=named):
        load_ds_config(name, OptimizerSettings(gradient_clipping=1.0))


def test_the_spike_guard_needs_the_norm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = without_norm(tmp_path)
    check_drops_steps("zero2", OptimizerSettings())
    monkeypatch.chdir(tmp_path)
    options = ["engine.name=deepspeed", f"engine.ds_config={name}", "training.spike_guard=skip"]
    status, _, errors = run_here(["bigtrk/train.py", *options], monkeypatch, capsys)
    assert status == 2
    assert f"{name}: remove 'zero_optimization.compute_grad_norm'" in errors
    assert "set training.spike_guard=off" in errors


@pytest.mark.parametrize(("name", "bucket"), [("zero1", 500_000_000), ("zero3", 50_000_000)])
def test_a_bucket_has_no_more_numbers_than_the_model(name: str, bucket: int) -> None:
    content = load_ds_config(name, OptimizerSettings())
    given = content["zero_optimization"]
    for most, expected in ((1_000, 1_000), (10**9, bucket)):
        zero = with_bucket_of(content, most)["zero_optimization"]
        assert zero == {**given, "reduce_bucket_size": expected}
