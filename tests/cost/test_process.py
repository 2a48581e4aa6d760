"""The bytes of a process: its own, and those of its engine's modules."""

from dataclasses import replace

import pytest

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import A100, CPU, Machine
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration

MACHINE = replace(
    CPU, process_bytes=10**10, fsdp2_bytes=10**8, deepspeed_bytes=10**7, zero_bytes=10**6
)
ENGINES = {
    "ddp": ({"name": "ddp"}, 0),
    "fsdp2": ({"name": "fsdp2"}, 10**8),
    "zero0": ({"name": "deepspeed", "ds_config": "zero0"}, 10**7),
    "zero1": ({"name": "deepspeed", "ds_config": "zero1"}, 10**7 + 10**6),
    "zero3": ({"name": "deepspeed", "ds_config": "zero3"}, 10**7 + 10**6),
}


def process(engine: str, world: int, machine: Machine = MACHINE) -> float:
    settings = {"model": {"hidden": 8, "layers": 1}, "engine": ENGINES[engine][0]}
    cost = make_cost(Configuration.model_validate(settings), world, world, machine)
    return cost.memory(EventSize(100, 300), 1, 1).process


@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_takes_its_modules_however_many_ranks_there_are(engine: str) -> None:
    modules = ENGINES[engine][1]
    assert [process(engine, world) for world in (1, 2, 3)] == [10**10 + modules] * 3


def test_an_accelerator_s_memory_holds_none_of_them() -> None:
    """Every engine's process has what cuBLAS keeps."""
    assert {process(engine, 2, A100) for engine in ENGINES} == {A100.process_bytes}
