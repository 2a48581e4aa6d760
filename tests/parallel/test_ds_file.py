"""DeepSpeed's files are checked before DeepSpeed ignores what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from bigtrk.parallel.engines.deepspeed import load_ds_config
from bigtrk.parallel.settings import OptimizerSettings


def zero(**section: Any) -> dict[str, Any]:
    return {"zero_optimization": section}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"zero_optimisation": {"stage": 1}}, "did you mean 'zero_optimization'"),
        (zero(stge=1), "unknown key 'stge'; did you mean 'stage'"),
        (zero(stage3_prefetch_bucketsize=1), "did you mean 'stage3_prefetch_bucket_size'"),
        (zero(stage="2"), "zero_optimization.stage: must be 0 to 3"),
        (zero(stage=4), "must be 0 to 3, as a number (got 4)"),
        (zero(stage=10**4000), f"must be 0 to 3, as a number (got 1{39 * '0'})"),
        (zero(offload_optimizer={"devise": "cpu"}), "unknown key 'offload_optimizer.devise'"),
        (
            zero(stage=3, offload_optimizer={"device": "nvme", "nvme_path": "/nvme"}),
            "zero_optimization.offload_optimizer.device is nvme, from which bigtrk cannot",
        ),
        (
            zero(stage=3, zero_hpz_partition_size=8),
            "with 'zero_optimization.zero_hpz_partition_size'",
        ),
        (
            zero(stage=2, compute_grad_norm=False),
            "'zero_optimization.compute_grad_norm' is off, but bigtrk needs",
        ),
        ({"tensorboard": {}}, "key 'tensorboard' was removed; use run.loggers"),
        ({"train_batch_size": 8}, "remove 'train_batch_size'; set bigtrk's own training.events"),
        ({"optimizer": {"type": "Adam"}}, "remove 'optimizer'; set bigtrk's own optimizer.name "),
        (["stage", 1], "must be a JSON object"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: Any, named: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        load_ds_config(str(path), OptimizerSettings(), 1000)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_name_suggests_a_shipped_one() -> None:
    with pytest.raises(InputError, match="no file 'zero_1'; did you mean 'zero1'"):
        load_ds_config("zero_1", OptimizerSettings(), 1000)


@pytest.mark.parametrize(("name", "bucket"), [("zero1", 500_000_000), ("zero3", 50_000_000)])
def test_a_bucket_has_no_more_numbers_than_the_model(name: str, bucket: int) -> None:
    for weights, expected in ((1_000, 1_000), (10**9, bucket)):
        zero = load_ds_config(name, OptimizerSettings(), weights)["zero_optimization"]
        assert zero["reduce_bucket_size"] == expected
