"""Edges between layers in the memory of an accelerator's host: `model.recompute=offload`."""

from bigtrk.console import say
from bigtrk.cost.machines import find_machine
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError
from bigtrk.machine import memory_bytes
from bigtrk.parallel.collectives import together
from bigtrk.parallel.host import FILLED
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.spill import LaidEvents, gib


def check_host_memory(configuration: Configuration, ranks: Ranks, trained: LaidEvents) -> None:
    """Checks that each host has room for the edges of its ranks, and says how much they take, where
    an accelerator's edges go there. Collective.

    Raises:
        InputError: a host has too little memory.
    """
    if ranks.device.type == "cpu" or not configuration.model.offloads:
        return
    per_step = configuration.training.events_per_step
    cost = make_cost(configuration, ranks.world_size, ranks.local_size, find_machine(None))
    needed = edges_on_host(cost, trained, ranks.local_size, per_step)
    together(lambda: check_room(needed, FILLED * memory_bytes()))
    if ranks.is_first:
        most = max(most for _, most in needed.values())
        say(f"up to {gib(most)} GiB of edges go to the memory of a host")


def edges_on_host(
    cost: CostModel, trained: LaidEvents, ranks_of_host: int, events_per_step: int
) -> dict[str, tuple[float, float]]:
    """Returns the bytes of edges that the ranks of a host keep there: by event, those of its cut
    with fewest and of that with most, where as many ranks as a step gives work to train alike ones.
    """
    found: dict[str, tuple[float, float]] = {}
    for source, cut in trained.cuts():
        at_work = min(ranks_of_host, events_per_step * cut.ranks)
        n_bytes = at_work * cost.away_bytes(source.size, *cut)
        least, most = found.get(source.name, (n_bytes, n_bytes))
        found[source.name] = min(least, n_bytes), max(most, n_bytes)
    return found


def check_room(needed: dict[str, tuple[float, float]], room: float) -> None:
    """Checks that the memory of a host has room for the edges of each event, in one of its cuts.

    Raises:
        InputError: it has not.
    """
    least, event = max((least, event) for event, (least, _) in needed.items())
    if least > room:
        raise InputError(
            f"model.recompute=offload: the edges of {event} need {gib(least)} GiB of the "
            f"host's memory at least, and may fill {gib(room)} GiB; cut events in more "
            f"sectors, start fewer ranks on a host, or set model.precision=bf16"
        )
