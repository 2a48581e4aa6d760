"""The choice at the start of a training: `training.auto=true`."""

from collections.abc import Sequence

from bigtrk.console import say
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.host import FILLED
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.automatic.candidates import Candidate
from bigtrk.training.automatic.choice import choose, said
from bigtrk.training.automatic.margin import GIB, Limit, safe_share
from bigtrk.training.automatic.prediction import Task
from bigtrk.training.costs import find_machine
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import memory_budget


def settle(
    configuration: Configuration, ranks: Ranks, sources: Sequence[EventSource]
) -> Configuration:
    """Returns the configuration with what its user has left open chosen by rank 0. Collective.

    Where `training.routing` stays automatic, the sectors of each event are routing's choice, within
    the same memory, which `training.memory_gib` then is.

    Raises:
        InputError: an event fits a rank's memory with no settings that may be chosen, or the
            calibration of the machine cannot be read.
    """
    available = memory_budget(configuration, ranks)
    chosen = on_first_rank(lambda: _choose(configuration, ranks, sources, available))
    return chosen.configured(configuration)


def _choose(
    configuration: Configuration, ranks: Ranks, sources: Sequence[EventSource], available: float
) -> Candidate:
    machine = find_machine(None)
    sizes, limit = [source.size for source in sources], _limit(configuration, machine, available)
    task = Task(
        configuration,
        sizes,
        ranks.world_size,
        ranks.local_size,
        machine,
        limit,
        allow_bf16=configuration.training.auto_bf16,
    )
    try:
        found = choose(task).chosen
    except InputError as error:
        raise InputError(f"training.auto: {error}") from None
    say(
        f"training.auto: {said(found)}; predicted {found.memory / GIB:.2f} of "
        f"{limit.budget_gib:.2f} GiB of a rank and {found.seconds:.3g} s a step"
    )
    if configuration.training.memory_gib is not None:
        return found.candidate
    return Candidate((*found.candidate.values, ("training.memory_gib", str(limit.budget_gib))))


def _limit(configuration: Configuration, machine: MachineConstants, available: float) -> Limit:
    """Returns the memory of a rank, of which routing would fill the `available` bytes."""
    if configuration.training.memory_gib is not None:
        return Limit(available)
    return Limit(available / FILLED, safe_share(machine))
