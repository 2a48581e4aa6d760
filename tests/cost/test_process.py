"""The bytes of a process: the interpreter's, those of its part of a group, and of its engine."""

import pytest

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import A100, CPU, MachineConstants
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration

MACHINE = CPU.model_copy(
    update={
        "process_bytes": 10**10,
        "group_bytes": 10**9,
        "fsdp2_bytes": 10**8,
        "deepspeed_bytes": 10**7,
        "zero_bytes": 10**6,
    }
)
ENGINES = {
    "ddp": ({"name": "ddp"}, 0),
    "fsdp2": ({"name": "fsdp2"}, 10**8),
    "zero0": ({"name": "deepspeed", "ds_config": "zero0"}, 10**7),
    "zero1": ({"name": "deepspeed", "ds_config": "zero1"}, 10**7 + 10**6),
    "zero3": ({"name": "deepspeed", "ds_config": "zero3"}, 10**7 + 10**6),
}


def process(engine: str, world: int, machine: MachineConstants = MACHINE) -> float:
    settings = {"model": {"hidden": 8, "layers": 1}, "engine": ENGINES[engine][0]}
    cost = make_cost(Configuration.model_validate(settings), world, world, machine)
    return cost.memory(EventSize(100, 300), 1, 1).process


@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_takes_its_modules_and_beside_others_its_part_of_a_group(engine: str) -> None:
    modules = ENGINES[engine][1]
    assert process(engine, 1) == 10**10 + modules
    assert process(engine, 2) == process(engine, 3) == 10**10 + 10**9 + modules


def test_an_accelerator_s_memory_holds_none_of_them() -> None:
    assert process("ddp", 2, A100) == 0
