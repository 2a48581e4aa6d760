"""What the cost model predicts for runs that were measured: `bigtrk plan --check`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bigtrk.config import parse
from bigtrk.errors import InputError
from bigtrk.parallel.cost import CostModel
from bigtrk.parallel.event_size import EventSize
from bigtrk.parallel.machine_constants import MachineConstants
from bigtrk.parallel.sharding import sharding
from bigtrk.reports.dry_run import lay_out
from bigtrk.reports.event_sizes import folder_sizes
from bigtrk.reports.run_folder import Run, read_run
from bigtrk.reports.scaling import time_run
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import step_events


@dataclass(frozen=True)
class Checked:
    """Predicted and recorded peak memory [bytes] and seconds of the median step."""

    run: str
    peak_bytes: float
    recorded_peak_bytes: float
    batch_seconds: float
    recorded_batch_seconds: float

    @property
    def memory_error(self) -> float:
        return self.peak_bytes / self.recorded_peak_bytes - 1

    @property
    def time_error(self) -> float:
        return self.batch_seconds / self.recorded_batch_seconds - 1


def check(folder: Path, machine: MachineConstants, ranks_per_node: int | None) -> Checked:
    """Predict a recorded run. Without `ranks_per_node` all its ranks count as on one host.

    Raises:
        InputError: the run cannot be read, or has no finished epoch.
    """
    run = read_run(folder)
    timing = time_run(run)
    if timing.peak_memory_bytes is None or timing.batch_seconds is None:
        raise InputError(f"{folder}: has no finished epoch to compare with; let it train longer")
    configuration = parse(Configuration, run.record.config, str(folder / "run.json"))
    world = run.record.world_size
    cost = make_cost(configuration, world, ranks_per_node or world, machine)
    sizes = _sizes(run, configuration)
    routes = [(size, _parts(size, world)) for size in sizes]
    peak = max(cost.memory(size, parts).total for size, parts in routes)
    trained = routes[: run.record.data.train_events]
    plan = step_events(len(trained), configuration.training.events_per_step, seed=0, epoch=0)
    seconds = [lay_out(cost, [trained[i] for i in step]).seconds for step in plan]
    return Checked(
        run=str(folder),
        peak_bytes=peak,
        recorded_peak_bytes=timing.peak_memory_bytes,
        batch_seconds=median(seconds),
        recorded_batch_seconds=timing.batch_seconds,
    )


def make_cost(
    configuration: Configuration, world: int, ranks_per_node: int, machine: MachineConstants
) -> CostModel:
    """The cost model of a configuration on `world` ranks."""
    return CostModel(
        configuration.model,
        len(configuration.data.node_features),
        len(configuration.data.edge_features),
        sharding(configuration.engine, world),
        world,
        ranks_per_node,
        machine,
    )


def _parts(size: EventSize, world: int) -> int:
    """As many sectors as stored, or as there are ranks for (powers of two merge)."""
    return size.stored if size.stored <= world else 1 << (world.bit_length() - 1)


def _sizes(run: Run, configuration: Configuration) -> Sequence[EventSize]:
    """The run's events; where their folders are gone, all of the mean size."""
    try:
        return folder_sizes(configuration.data.train)
    except InputError:
        data = run.record.data
        if not (data.train_events and data.nodes and data.edges):
            raise
        parts = max(data.routes, default=1)
        mean = EventSize(data.nodes / data.train_events, data.edges / data.train_events, parts)
        return [mean] * data.train_events
