"""The cost model of a configuration, on a machine that was calibrated or is assumed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bigtrk.config import parse
from bigtrk.console import warn_once
from bigtrk.cost.data_sheets import DATA_SHEETS, data_sheet
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import (
    A100,
    CPU,
    DEFAULTS,
    MachineConstants,
    default_machine,
)
from bigtrk.cost.model import CostModel
from bigtrk.cost.sharding import sharding
from bigtrk.disk.cache import cache_folder
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.machine import accelerator
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run import RooflineRecord
from bigtrk.training.settings import Configuration


def make_cost(
    configuration: Configuration,
    world: int,
    ranks_per_node: int,
    machine: MachineConstants,
    shares: int = 1,
    events: float = math.inf,
) -> CostModel:
    """Makes the cost model of a configuration on `world` ranks that train so many events; other
    arguments are the model's.
    """
    return CostModel(
        configuration.model,
        len(configuration.data.node_features),
        len(configuration.data.edge_features),
        sharding(configuration.engine, world),
        world,
        ranks_per_node,
        machine,
        shares,
        configuration.training.events_per_step,
        reads_ahead=events > configuration.training.events_per_step,
        averages=configuration.training.average_decay is not None,
    )


def with_files(cost: CostModel, configuration: Configuration, budget: float | None) -> CostModel:
    """Returns the cost where edges beyond a `budget` of bytes go to files, if the configuration has
    them do so; of no budget that of all in memory.
    """
    spills = configuration.training.spill and cost.machine.shared
    return replace(cost, spills_beyond=budget) if spills and cost.model.spills else cost


def operations(configuration: Configuration, sizes: Sequence[tuple[float, float]]) -> list[float]:
    """Counts the operations of matrix products that train whole graphs of (nodes, edges); they are
    the same on any machine.
    """
    flops = make_cost(configuration, 1, 1, CPU).footprint(cut=False).flops
    return [float(flops @ [edges, nodes, nodes, 1.0]) for nodes, edges in sizes]


def roofline(configuration: Configuration, nodes: int, edges: int) -> RooflineRecord | None:
    """Counts what training an edge of these events takes, for a GPU whose data sheet is known; None
    of other devices, which is said of GPUs, and of mini-batches, which are not the events.
    """
    name = accelerator()
    sheet = data_sheet(name)
    if sheet is None and name != "cpu":
        known = ", ".join(DATA_SHEETS)
        warn_once(
            "data sheet",
            f"reports will have no MFU of {name}, since data sheets of {known} alone are known",
        )
    if sheet is None or not edges or configuration.sampling.method != "none":
        return None
    model = configuration.model
    once = {"recompute": "none"} if "recompute" in type(model).model_fields else {}
    plain = configuration.model_copy(update={"model": model.model_copy(update=once)})
    sizes = [edges, nodes, nodes, 0.0]
    on_gpu = make_cost(configuration, 1, 1, A100).footprint(cut=False)
    in_bf16 = bool(on_gpu.bf16_flops @ sizes > 0)
    return RooflineRecord(
        gpu=sheet.name,
        flops_per_edge=operations(plain, [(nodes, edges)])[0] / edges,
        bytes_per_edge=float((on_gpu.products + on_gpu.traffic) @ sizes) / edges,
        flops_per_second=sheet.flops(bf16=in_bf16),
        bytes_per_second=sheet.bandwidth,
    )


def hides_exchange(
    configuration: Configuration, ranks: Ranks, sizes: Sequence[EventSize], num_ranks: Sequence[int]
) -> bool:
    """Says whether halo rows travel while layers compute, by the prediction for the largest event
    on the most ranks that share one.
    """
    most = max(num_ranks, default=1)
    if most == 1:
        return False
    largest = max(sizes, key=lambda size: size.edges)
    cost = make_cost(configuration, ranks.world_size, ranks.local_size, find_machine(None))
    return cost.hidden_seconds(largest, most, most) > 0


def find_machine(name: str | None) -> MachineConstants:
    """Returns the constants of a file or of a default by name; without a name, this machine's
    calibration, else the default of its kind.

    Raises:
        InputError: the file is missing or holds something else.
    """
    if name in DEFAULTS:
        return DEFAULTS[name]
    if name is not None:
        return load_constants(Path(name))
    calibration = _own_calibration()
    if calibration is not None:
        return load_constants(calibration)
    return default_machine(accelerator())


def calibration_path() -> Path:
    """Returns the path where the calibration of this user's machine is kept.

    Raises:
        OSError: this user has no home folder.
    """
    return cache_folder() / "calibration.json"


def _own_calibration() -> Path | None:
    """Returns this machine's calibration, where there is one and the cache may be read."""
    try:
        path = calibration_path()
        path.stat()
    except OSError:
        return None
    return path


def load_constants(path: Path) -> MachineConstants:
    """Reads constants that `bigtrk plan --calibrate` wrote.

    Raises:
        InputError: there is no such file, it holds something else, or what an earlier version
            measured.
    """
    content = read_json(path)
    try:
        machine = parse(MachineConstants, content, str(path))
        if not machine.shared and "fused" not in machine.alone.seconds:
            raise InputError(f"{path}: tells nothing of a GPU's passes over edges")
    except InputError as error:
        raise InputError(
            f"{error}; what an earlier version measured has other constants: run bigtrk plan "
            f"--calibrate again"
        ) from None
    return machine
