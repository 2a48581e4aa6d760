"""The cost model's predictions for runs that were measured: `bigtrk plan --check`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bigtrk.config import parse
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError
from bigtrk.parallel.host import FILLED
from bigtrk.parallel.routing import Cut
from bigtrk.planning.dry_run import predict_step
from bigtrk.planning.mini_batches import mini_batches
from bigtrk.planning.prediction import Predicted, Task, predict_mini_batches, predict_steps
from bigtrk.records.metrics import StepRecord
from bigtrk.records.run_folder import RUN, Run, read_run
from bigtrk.reports.scaling import time_run
from bigtrk.training.costs import make_cost
from bigtrk.training.data.event_source import open_events, split_validation
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import GIB, FittingCuts


@dataclass(frozen=True)
class Checked:
    """The predicted and recorded peak memory [bytes] and seconds of the median step."""

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
    """Predicts a recorded run. Without `ranks_per_node` all its ranks are taken to be on one host.

    Raises:
        InputError: the run cannot be read, or has no finished epoch.
    """
    run = read_run(folder)
    timing = time_run(run)
    if not timing.peak_memory_bytes or not timing.batch_seconds:
        raise InputError(f"{folder}: has no finished epoch to compare with; let it train longer")
    cost = _cost(run, machine, ranks_per_node)
    found = _predict(run, cost)
    return Checked(
        run=str(folder),
        peak_bytes=found.peak_bytes,
        recorded_peak_bytes=timing.peak_memory_bytes,
        batch_seconds=found.step_seconds,
        recorded_batch_seconds=timing.batch_seconds,
    )


def _predict(run: Run, cost: CostModel) -> Predicted:
    """Predicts a run as it was routed, or its mini-batches from its events.

    Raises:
        InputError: the record lacks what is needed, or mini-batches' events are gone.
    """
    configuration = _configuration(run)
    if configuration.sampling.method == "none":
        steps = _routed(run, run.steps)
        return predict_steps(_with_files(run, cost, steps), steps)
    data = configuration.data
    sources = split_validation(data.train, data.validation, data.events)[0]
    batches = mini_batches(configuration, sources, cost.world)
    return predict_mini_batches(configuration, cost, batches)


def predict_epoch(
    run: Run, machine: MachineConstants, ranks_per_node: int | None, shares: int = 1
) -> float:
    """Predicts the seconds of an epoch of a recorded run. Without `ranks_per_node` all its ranks
    are taken to be on one host, whose cores are split into `shares` (`CostModel`).

    Raises:
        InputError: the run's record lacks what is needed.
    """
    # All epochs train the same events: the first stands for them.
    steps = _routed(run, [step for step in run.steps if step.epoch == run.steps[0].epoch])
    cost = _with_files(run, _cost(run, machine, ranks_per_node, shares), steps)
    return sum(predict_step(cost, step).seconds for step in steps)


def _cost(
    run: Run, machine: MachineConstants, ranks_per_node: int | None, shares: int = 1
) -> CostModel:
    configuration, world = _configuration(run), run.record.world_size
    on_host, events = ranks_per_node or world, run.record.data.train_events or math.inf
    return make_cost(configuration, world, on_host, machine, shares, events)


def _with_files(run: Run, cost: CostModel, steps: Sequence[Sequence[Task]]) -> CostModel:
    """Returns the cost with edges in files, if steps of a run had them there."""
    configuration = _configuration(run)
    budget = _memory(run, configuration, cost.ranks_per_node)
    if budget is None:
        return cost
    return FittingCuts(configuration, cost, budget).cost_of(chain(*steps))


def _memory(run: Run, configuration: Configuration, on_host: int) -> float | None:
    """Returns the bytes that a rank filled before edges went to files, if that is known."""
    if gib := configuration.training.memory_gib:
        return gib * GIB
    of_host = run.record.machine.memory_bytes
    return FILLED * of_host / min(on_host, run.record.world_size) if of_host else None


def _configuration(run: Run) -> Configuration:
    return parse(Configuration, run.record.config, str(run.folder / RUN))


def _routed(run: Run, steps: Sequence[StepRecord]) -> list[list[Task]]:
    """Returns the size and the cut of each event, by step."""
    configuration = _configuration(run)
    if configuration.sampling.method != "none":
        raise InputError(
            f"{run.folder}: was trained on parts of events "
            f"(sampling.method={configuration.sampling.method}), whose steps are not predicted; "
            f"name runs on whole events"
        )
    known = _sizes(configuration)
    found = [
        [
            (known.get(name, _mean_size(run)), Cut(parts, step.ranks.get(name, parts)))
            for name, parts in step.routes.items()
        ]
        for step in steps
        if step.routes
    ]
    if not found:
        raise InputError(f"{run.folder}: does not say how its events were routed; train it again")
    most, world = max(cut.ranks for step in found for _, cut in step), run.record.world_size
    if most > world:
        # This happens to a run that was resumed on fewer ranks.
        raise InputError(
            f"{run.folder}: trained an event on {most} ranks, and was on {world} rank(s) at its "
            f"end; compare a run that kept its ranks"
        )
    return found


def _sizes(configuration: Configuration) -> dict[str, EventSize]:
    """Returns the sizes of the run's events by name; none where their folders are gone."""
    try:
        return {source.name: source.size for source in open_events(configuration.data.train)}
    except (InputError, OSError):  # OSError: for instance, the name of a folder is too long
        return {}


def _mean_size(run: Run) -> EventSize:
    data = run.record.data
    if not (data.train_events and data.nodes and data.edges):
        raise InputError(f"{run.folder}: its data are gone, and their size is unknown")
    return EventSize(data.nodes / data.train_events, data.edges / data.train_events)
