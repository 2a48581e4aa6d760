"""Checks what bigtrk reads of DeepSpeed that is not documented: what has moved is named here."""

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import Stopwatch
from tests.distributed.ranks import run_ranks
from tests.programs import CHECKOUT

READ_IN = CHECKOUT / "bigtrk" / "parallel" / "engines" / "deepspeed_engine.py"
STAGES = range(4)
# By stage: dotted paths from DeepSpeed's engine, and from a parameter of which a rank has a part.
FLAT = (
    "optimizer.scaled_global_norm",
    "optimizer.single_partition_of_fp32_groups",
)
FLAT_PARAMETER = (
    "_index_in_param_group",
    "_hp_mapping.param_group_index",
    "_hp_mapping.hp_fragment",
    "_hp_mapping.hp_fragment_address.start",
    "_hp_mapping.hp_fragment_address.numel",
    "_hp_mapping.lp_fragment_address.start",
    "_hp_mapping.get_lp_grad_fragment",
)
THIRD = (
    "optimizer._get_norm_groups",
    "optimizer.fp32_partitioned_groups_flat",
    "optimizer.grad_position",
    "optimizer.get_param_id",
)
THIRD_PARAMETER = ("ds_shape", "ds_numel", "ds_tensor", "ds_status")
ENGINE: dict[int, tuple[str, ...]] = {0: (), 1: FLAT, 2: FLAT, 3: THIRD}
PARAMETER: dict[int, tuple[str, ...]] = {
    0: (),
    1: FLAT_PARAMETER,
    2: FLAT_PARAMETER,
    3: THIRD_PARAMETER,
}
COMMUNICATION = ("timers.get_timers", "comms_logger.comms_dict")
BACKEND = ("build_shm_op",)


def lacking(thing: Any, paths: tuple[str, ...]) -> Iterator[str]:
    """Yields the paths that lead nowhere, each up to where it ends."""
    for path in paths:
        at, walked = thing, []
        for name in path.split("."):
            walked.append(name)
            if not hasattr(at, name):
                yield ".".join(walked)
                break
            at = getattr(at, name)


def moved(ranks: Ranks, compiled: Path) -> dict[str, list[str]]:
    """Names what live engines of each stage do not have.

    compiled: the folder of what they compile.
    """
    from deepspeed.comm import comm

    backend = import_module("deepspeed.comm.torch")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(compiled)
    found = {
        "deepspeed.comm.comm": list(lacking(comm, COMMUNICATION)),
        "deepspeed.comm.torch": list(lacking(backend, BACKEND)),
    }
    for stage in STAGES:
        model = torch.nn.Linear(8, 8)
        settings = EngineSettings(name="deepspeed", ds_config=f"zero{stage}")
        engine, _ = make_engine(settings, model, OptimizerSettings(), Stopwatch(ranks.device))
        found[f"engine of stage {stage}"] = list(lacking(engine.model, ENGINE[stage]))
        # Cut flat, a parameter may be none of this rank's.
        own = [one for one in model.parameters() if getattr(one, "_hp_mapping", one) is not None]
        missing = lacking(own[0], PARAMETER[stage]) if own else ["_hp_mapping, of any"]
        found[f"parameter of stage {stage}"] = list(missing)
    return found


def test_what_is_read_of_deepspeed_is_there(tmp_path: Path) -> None:
    version = pytest.importorskip("deepspeed").__version__
    for rank, found in enumerate(run_ranks(2, moved, tmp_path, fresh=True)):
        for where, names in found.items():
            assert not names, (
                f"DeepSpeed {version} has moved {names} of its {where} (rank {rank}): "
                f"{READ_IN.name} reads it"
            )
    assert not list(tmp_path.iterdir()), "it compiles"
