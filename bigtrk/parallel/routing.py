"""The routes of a step: the sector that each rank computes in each micro-step.

They are a function of the step's events, of their predicted costs and of the world size alone, so
every rank computes the same routes and no rank needs to be told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

# Number of bounds on the longest event that are tried for a step, from no bound to the tightest.
_BOUNDS = 16


@dataclass(frozen=True)
class Assignment:
    """Part `part` of `parts` of event number `event`; `parts` ranks from `first_rank` hold it.

    If an event is trained in mini-batches, a part is one of them, and `first_rank` has it alone, or
    (0) all ranks have a share of their own in it.
    """

    event: int
    part: int
    parts: int
    first_rank: int


# A micro-step: the share that each rank computes, None for an empty sector.
MicroStep = Sequence[Assignment | None]


@dataclass(frozen=True)
class RoutedEvent:
    """Event number `event` in `parts` sectors, predicted to take `seconds`."""

    event: int
    parts: int
    seconds: float


@dataclass(frozen=True)
class Layout:
    """A step laid over the ranks. `loads` [W]: seconds until each rank is done; `seconds`: until
    all are done.
    """

    micro_steps: list[MicroStep]
    loads: NDArray[np.float64]
    seconds: float

    @property
    def imbalance(self) -> float:
        """Returns the most loaded rank's seconds over the mean."""
        return float(self.loads.max() / self.loads.mean()) if self.loads.any() else 1.0


@dataclass(frozen=True)
class Router:
    """Lays steps over `world_size` ranks.

    seconds: by event, the predicted seconds in each number of sectors that it may be trained in.
    lockstep: true if ranks wait for each other in every micro-step, as with an engine that gathers
    sharded weights, and not only at the end.
    """

    seconds: Sequence[Mapping[int, float]]
    world_size: int
    lockstep: bool = False

    @property
    def num_parts(self) -> list[int]:
        """Lists all numbers of sectors that an event may be trained in."""
        return sorted({parts for choices in self.seconds for parts in choices})

    def route(self, events: Sequence[int]) -> list[MicroStep]:
        """Returns the micro-steps of `layout`."""
        return self.layout(events).micro_steps

    def layout(self, events: Sequence[int]) -> Layout:
        """Lays `events` over the ranks, each in as many sectors as end the step soonest.

        An event of K sectors occupies K ranks, the first a multiple of K, so that groups of one
        size never overlap. Every rank has a place in every micro-step.
        """
        layouts = (self._bounded(events, bound) for bound in self._bounds(events))
        return min(layouts, key=lambda layout: layout.seconds)

    def _bounds(self, events: Sequence[int]) -> list[float]:
        """Lists bounds on a single event's time to try, longest first: ties go to fewer sectors.

        Source: G. Mounié et al., "A 3/2-approximation algorithm for scheduling independent
        monotonic malleable tasks" (2007) also choose the num_parts by a bound.
        """
        times = sorted({t for event in events for t in self.seconds[event].values()}, reverse=True)
        picked = np.linspace(0, len(times) - 1, min(_BOUNDS, len(times)))
        return [times[round(i)] for i in picked]

    def _bounded(self, events: Sequence[int], bound: float) -> Layout:
        """Lays out each event in the fewest sectors that end within `bound`."""
        tasks = []
        for event in events:
            choices = self.seconds[event]
            quick = [parts for parts, seconds in choices.items() if seconds <= bound]
            parts = min(quick) if quick else min(choices, key=lambda k: (choices[k], k))
            tasks.append(RoutedEvent(event, parts, choices[parts]))
        return lay_out(tasks, self.world_size, self.lockstep)


def usable_parts(stored: int, world_size: int) -> int:
    """Returns over how many ranks at most an event cut into `stored` sectors is laid.

    Sectors merge into any smaller power of two when they are read (docs/design.md).
    """
    if stored <= world_size:
        return stored
    return 1 << (world_size.bit_length() - 1)


def possible_parts(stored: int, world_size: int) -> list[int]:
    """Lists, ascending, numbers of ranks an event cut into `stored` sectors may be laid over."""
    most = usable_parts(stored, world_size)
    return sorted({1 << i for i in range(most.bit_length())} | {most})


def as_stored(
    sizes: Iterable[tuple[int, float]], world_size: int, lockstep: bool = False
) -> Router:
    """Makes a router of events, given by (stored sectors, edges), in as many parts as possible."""
    known = [(usable_parts(stored, world_size), edges) for stored, edges in sizes]
    return Router([{parts: edges / parts} for parts, edges in known], world_size, lockstep)


def lay_out(tasks: Iterable[RoutedEvent], world_size: int, lockstep: bool = False) -> Layout:
    """Gives each task, widest and then longest first, the aligned ranks that are free first.

    Where ranks wait `lockstep`, it takes those with the fewest micro-steps, so that tasks of like
    length share one.
    """
    board = _Board(world_size)
    widest = sorted(tasks, key=lambda task: (-task.parts, -task.seconds, task.event))
    for parts, group in groupby(widest, key=lambda task: task.parts):
        free = [
            (board.free(first, parts, lockstep), first) for first in range(0, world_size, parts)
        ]
        free = [(when, first) for when, first in free if first + parts <= world_size]
        heapify(free)
        for task in group:
            first = heappop(free)[1]
            board.place(task, first)
            heappush(free, (board.free(first, parts, lockstep), first))
    seconds = sum(board.longest) if lockstep else board.loads.max()
    return Layout([*board.micro_steps], board.loads, float(seconds))


class _Board:
    """Micro-steps being filled. `longest`: seconds of the longest task of each."""

    def __init__(self, world_size: int) -> None:
        self.micro_steps: list[list[Assignment | None]] = []
        self.longest: list[float] = []
        self.loads = np.zeros(world_size)
        self._used = np.zeros(world_size, dtype=np.int64)

    def free(self, first: int, parts: int, lockstep: bool) -> float:
        """Returns when ranks `first` to `first + parts` are free: in micro-steps or in seconds."""
        return float((self._used if lockstep else self.loads)[first : first + parts].max())

    def place(self, task: RoutedEvent, first: int) -> None:
        block = slice(first, first + task.parts)
        row = int(self._used[block].max())
        if row == len(self.micro_steps):
            self.micro_steps.append([None] * len(self.loads))
            self.longest.append(0.0)
        shares = [Assignment(task.event, part, task.parts, first) for part in range(task.parts)]
        self.micro_steps[row][block] = shares
        self.longest[row] = max(self.longest[row], task.seconds)
        self.loads[block] = self.loads[block].max() + task.seconds
        self._used[block] = row + 1
