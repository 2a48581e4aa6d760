"""The cost model of a configuration."""

import math
from collections.abc import Sequence
from dataclasses import replace

from bigtrk.console import warn_once
from bigtrk.cost.machines import A100, CPU, DATA_SHEETS, Machine, data_sheet
from bigtrk.cost.model import CostModel
from bigtrk.cost.sharding import sharding
from bigtrk.machine import accelerator
from bigtrk.records.run import RooflineRecord
from bigtrk.training.settings import Configuration


def make_cost(
    configuration: Configuration,
    world: int,
    ranks_per_node: int,
    machine: Machine,
    shares: int = 1,
    events: float = math.inf,
) -> CostModel:
    """Makes the cost model of a configuration that trains `events` on `world` ranks; the other
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
    """Returns the cost with edges beyond a `budget` in bytes in files, if the configuration allows
    files; without a budget, with all edges in memory.
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
    """Counts operations and bytes for each trained edge, on a GPU whose data sheet is known; None
    on other devices and for mini-batches. Unknown GPUs are named once.
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
        bytes_per_edge=float(on_gpu.traffic @ sizes) / edges,
        flops_per_second=sheet.flops(bf16=in_bf16),
        bytes_per_second=sheet.bandwidth,
    )
