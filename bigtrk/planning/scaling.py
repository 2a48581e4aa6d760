"""Scales the roofline of a machine to the measured steps of a run, and predicts epochs."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from statistics import median

from bigtrk.config import parse
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import Machine
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError
from bigtrk.parallel.routing import Cut, RoutedEvent, lay_out
from bigtrk.records.metrics import StepRecord
from bigtrk.records.run_folder import RUN, Run
from bigtrk.training.data.event_source import open_events
from bigtrk.training.fitting import make_cost
from bigtrk.training.settings import Configuration

Task = tuple[EventSize, Cut]


def step_seconds(cost: CostModel, events: Iterable[Task]) -> float:
    """Returns the seconds of a step of cut events: its slowest rank, plus the reduction."""
    known: dict[Task, float] = {}
    tasks = []
    for i, (event, cut) in enumerate(events):
        if (event, cut) not in known:
            known[event, cut] = cost.seconds(event, *cut)
        tasks.append(RoutedEvent(i, cut, known[event, cut]))
    layout = lay_out(tasks, cost.world, lockstep=cost.sharding.lockstep)
    micro_steps = len(layout.micro_steps)
    passes = cost.passes(micro_steps, layout.sectors_in_turn)
    return layout.seconds + cost.reduction_seconds(micro_steps, passes)


def as_measured(machine: Machine, run: Run) -> Machine:
    """Returns the machine, slowed down so that the run's median step takes the recorded time.
    Raises InputError if the record lacks what is needed.
    """
    steps = [step for step in run.steps if step.routes][1:]
    measured = [step.seconds for step in steps if step.seconds]
    if not measured:
        raise InputError(
            f"{run.folder}: has fewer than two steps on whole events or sectors, which a plan "
            "needs; train longer, without sampling"
        )
    return machine.slower(median(measured) / median(_counted(run, steps, machine)))


def epoch_seconds(run: Run, machine: Machine) -> float:
    """Returns the roofline seconds, on `machine`, of an epoch of a run, routed as recorded. Raises
    InputError if the record has no steps of whole events or lacks sizes.
    """
    # All epochs train the same events, so the first represents them.
    first = [step for step in run.steps if step.epoch == run.steps[0].epoch and step.routes]
    if not first:
        raise InputError(f"{run.folder}: has no steps of whole events; name a run without sampling")
    return sum(_counted(run, first, machine))


def _counted(run: Run, steps: Sequence[StepRecord], machine: Machine) -> list[float]:
    """Returns the roofline seconds of each step of a run, routed as recorded. Events whose folders
    no longer exist count with the mean size.
    """
    configuration = parse(Configuration, run.record.config, str(run.folder / RUN))
    world, data = run.record.world_size, run.record.data
    most = max(step.ranks.get(name, n) for step in steps for name, n in step.routes.items())
    if most > world:
        # This happens to a run that was resumed on fewer ranks.
        raise InputError(
            f"{run.folder}: trained on {most} ranks first and on {world} at its end; name a run "
            f"whose number of ranks stayed the same"
        )
    if not (data.train_events and data.nodes and data.edges):
        raise InputError(f"{run.folder}: {RUN} lacks counts of nodes and edges; name another run")
    mean = EventSize(data.nodes / data.train_events, data.edges / data.train_events)
    known: dict[str, EventSize] = {}
    with suppress(InputError, OSError):  # OSError: for instance, the name of a folder is too long
        known = {source.name: source.size for source in open_events(configuration.data.train)}
    cost = make_cost(configuration, world, world, machine, events=data.train_events)

    def tasks(step: StepRecord) -> list[Task]:
        cuts = {name: Cut(n, step.ranks.get(name, n)) for name, n in step.routes.items()}
        return [(known.get(name, mean), cut) for name, cut in cuts.items()]

    return [step_seconds(cost, tasks(step)) for step in steps]
