"""Which rank computes which sector in which micro-step.

A function of the step's events and the world size alone, so every rank computes the same answer
and no rank needs to be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """Part `part` of `parts` of event number `event`; `parts` ranks from `first_rank` hold it."""

    event: int
    part: int
    parts: int
    first_rank: int


# One micro-step: what each rank computes, None for an empty sector.
MicroStep = list[Share | None]


def usable_parts(stored: int, world_size: int) -> int:
    """How many ranks an event cut into `stored` sectors is laid over.

    Sectors merge into any smaller power of two when they are read (DESIGN.md).
    """
    if stored <= world_size:
        return stored
    return 1 << (world_size.bit_length() - 1)


def route(events: Sequence[int], stored: Sequence[int], world_size: int) -> list[MicroStep]:
    """Lay `events` over the ranks in as few micro-steps as first fit finds.

    `stored[event]` is the number of sectors the event is cut into. An event of K sectors occupies
    K ranks from a multiple of K on, so that groups of one size never overlap.
    """
    micro_steps: list[MicroStep] = []
    widest_first = sorted(events, key=lambda event: -stored[event])
    for event in widest_first:
        parts = usable_parts(stored[event], world_size)
        micro_step, first_rank = _place(micro_steps, parts, world_size)
        for part in range(parts):
            micro_step[first_rank + part] = Share(event, part, parts, first_rank)
    return micro_steps


def _place(micro_steps: list[MicroStep], parts: int, world_size: int) -> tuple[MicroStep, int]:
    for micro_step in micro_steps:
        for first_rank in range(0, world_size - parts + 1, parts):
            if not any(micro_step[first_rank : first_rank + parts]):
                return micro_step, first_rank
    micro_steps.append([None] * world_size)
    return micro_steps[-1], 0
