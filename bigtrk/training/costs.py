"""The cost model of a configuration."""

import math
from collections.abc import Sequence
from dataclasses import replace

from bigtrk.cost.machines import CPU, Machine
from bigtrk.cost.model import CostModel
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
        configuration.engine.sharding(world),
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
