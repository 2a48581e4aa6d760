"""The routes of a step: the sectors that each rank computes in each micro-step.

Routes depend only on the step's events, their predicted costs and the world size, so every rank
computes the same routes without communication.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigtrk.graphs.sector import group

# Number of bounds on the longest event that are tried for a step, from no bound to the tightest.
_BOUNDS = 16


class Cut(NamedTuple):
    """An event cut into `parts` sectors, spread over `ranks` ranks as evenly as can be."""

    parts: int
    ranks: int

    @property
    def most_on_a_rank(self) -> int:
        """The largest number of sectors on a rank."""
        return -(-self.parts // self.ranks)


WHOLE = Cut(1, 1)


@dataclass(frozen=True)
class Assignment:
    """The sectors `held` (ascending) by one rank, out of `parts` sectors of event number `event`.
    Ranks `first_rank` to `first_rank` + `ranks` - 1 together hold all of them.

    If an event is trained in mini-batches, a part is one of them: a sector or wedge on `first_rank`
    alone, or a mini-batch of ShaDow, of which every rank has a share (then first_rank is 0).
    """

    event: int
    held: tuple[int, ...]
    parts: int
    first_rank: int
    ranks: int = 1

    @property
    def part(self) -> int:
        """The first of the held parts; a mini-batch has only this one."""
        return self.held[0]


# A micro-step: the share that each rank computes, None for an empty sector.
MicroStep = Sequence[Assignment | None]


@dataclass(frozen=True)
class RoutedEvent:
    """Event number `event`, cut as `cut`, predicted to take `seconds`.

    part: if sectors are trained separately, the number of the one sector that this task trains.
    """

    event: int
    cut: Cut
    seconds: float
    part: int | None = None

    @property
    def ranks(self) -> int:
        return self.cut.ranks if self.part is None else 1

    def assignments(self, first_rank: int) -> list[Assignment]:
        """Returns the assignment of each of the event's ranks, `first_rank` first."""
        parts, ranks = self.cut
        held = (
            [group(i, ranks, parts) for i in range(ranks)] if self.part is None else [[self.part]]
        )
        return [Assignment(self.event, tuple(own), parts, first_rank, self.ranks) for own in held]


@dataclass(frozen=True)
class Layout:
    """A step laid out over W ranks. loads [W]: seconds until each rank is done. seconds: until all
    ranks are done.
    """

    micro_steps: list[MicroStep]
    loads: NDArray[np.float64]
    seconds: float

    @property
    def imbalance(self) -> float:
        """The largest load of a rank over the mean load."""
        return float(self.loads.max() / self.loads.mean()) if self.loads.any() else 1.0

    @property
    def sectors_in_turn(self) -> int:
        """The sectors computed one after another: the most on a rank, summed over micro-steps."""
        held = ([len(share.held) for share in row if share] for row in self.micro_steps)
        return sum(max(of_ranks, default=1) for of_ranks in held)


@dataclass(frozen=True)
class Router:
    """Lays steps out over `world_size` ranks.

    seconds: for each event, the predicted seconds of each possible cut. lockstep: true if ranks
    wait for each other in every micro-step, as with an engine that gathers sharded weights, and not
    only at the end. apart: true if sectors are trained separately. Then each sector is laid out by
    itself, on one rank, and `seconds` are those of one sector.
    """

    seconds: Sequence[Mapping[Cut, float]]
    world_size: int
    lockstep: bool = False
    apart: bool = False

    @property
    def num_ranks(self) -> list[int]:
        """All numbers of ranks over which an event may be laid, ascending."""
        if self.apart:
            return [1]
        return sorted({cut.ranks for choices in self.seconds for cut in choices})

    def route(self, events: Sequence[int]) -> list[MicroStep]:
        """Returns the micro-steps of the fastest layout of `events`."""
        return self.layout(events).micro_steps

    def layout(self, events: Sequence[int]) -> Layout:
        """Lays each of the `events` over the number of ranks that ends the step soonest.

        An event occupies K ranks, the first a multiple of K, so that groups of one size never
        overlap. Every rank has a place in every micro-step.
        """
        # Bounds on a single event's time are tried, longest first: ties go to fewer ranks.
        times = sorted({t for event in events for t in self.seconds[event].values()}, reverse=True)
        picked = np.linspace(0, len(times) - 1, min(_BOUNDS, len(times)))
        layouts = (self._bounded(events, times[round(i)]) for i in picked)
        return min(layouts, key=lambda layout: layout.seconds)

    def _bounded(self, events: Sequence[int], bound: float) -> Layout:
        """Lays each event over the fewest ranks that compute it within `bound` seconds."""
        tasks = []
        for event in events:
            choices = self.seconds[event]
            quick = [(cut.ranks, choices[cut], cut) for cut in choices if choices[cut] <= bound]
            cut = min(quick)[2] if quick else min((choices[cut], cut) for cut in choices)[1]
            parts = range(cut.parts) if self.apart else [None]
            tasks += [RoutedEvent(event, cut, choices[cut], part) for part in parts]
        return lay_out(tasks, self.world_size, self.lockstep)


def usable_parts(stored: int, world_size: int) -> int:
    """Returns the largest number of ranks over which an event of `stored` sectors may be laid.

    Sectors merge into any smaller power of two when they are read (docs/design.md).
    """
    return stored if stored <= world_size else 1 << (world_size.bit_length() - 1)


def possible_parts(stored: int, world_size: int) -> list[int]:
    """Lists, ascending, the numbers of ranks over which `stored` sectors may be laid."""
    most = usable_parts(stored, world_size)
    return sorted({1 << i for i in range(most.bit_length())} | {most})


def finer_cuts(stored: int, world_size: int) -> list[Cut]:
    """Lists the cuts of an event of `stored` sectors that put several sectors on a rank."""
    numbers = {*possible_parts(world_size, world_size)}
    cuts = {even_cut(k, ranks) for k in possible_parts(stored, stored) for ranks in numbers}
    return sorted(cut for cut in cuts if cut.ranks < cut.parts)


def even_cut(parts: int, world_size: int) -> Cut:
    """Returns the cut into `parts` sectors with the fewest sectors on a rank; among such cuts, the
    one over the fewest ranks.
    """
    most = -(-parts // world_size)  # sectors on a rank
    return Cut(parts, -(-parts // most))


def as_stored(
    sizes: Iterable[tuple[int, float]],
    world_size: int,
    lockstep: bool = False,
    several: bool = False,
) -> Router:
    """Makes a router over as many ranks as possible. sizes: stored sectors and edges of each event.

    several: if an event has more sectors than there are ranks, a rank holds several; otherwise
    these are merged into one.
    """

    def cut(stored: int) -> Cut:
        merged = usable_parts(stored, world_size)
        return even_cut(stored, world_size) if several else Cut(merged, merged)

    known = ((cut(stored), edges) for stored, edges in sizes)
    return Router([{one: edges / one.ranks} for one, edges in known], world_size, lockstep)


def lay_out(tasks: Iterable[RoutedEvent], world_size: int, lockstep: bool = False) -> Layout:
    """Places tasks, widest and then longest first, each on the aligned ranks that are free soonest.

    In `lockstep` it prefers ranks with the fewest micro-steps, so that tasks of like length share a
    micro-step.
    """
    board = _Board(world_size)
    widest = sorted(tasks, key=lambda t: (-t.ranks, -t.seconds, t.event, t.part or 0))
    for ranks, alike in groupby(widest, key=lambda task: task.ranks):
        free = [
            (board.free(first, ranks, lockstep), first) for first in range(0, world_size, ranks)
        ]
        free = [(when, first) for when, first in free if first + ranks <= world_size]
        heapify(free)
        for task in alike:
            first = heappop(free)[1]
            board.place(task, first)
            heappush(free, (board.free(first, ranks, lockstep), first))
    seconds = sum(board.longest) if lockstep else board.loads.max()
    return Layout([*board.micro_steps], board.loads, float(seconds))


class _Board:
    """The micro-steps being filled. longest: seconds of the longest task in each micro-step."""

    def __init__(self, world_size: int) -> None:
        self.micro_steps: list[list[Assignment | None]] = []
        self.longest: list[float] = []
        self.loads = np.zeros(world_size)
        self._used = np.zeros(world_size, dtype=np.int64)

    def free(self, first: int, ranks: int, lockstep: bool) -> float:
        """Returns when `ranks` ranks from `first` on are free: in micro-steps or in seconds."""
        return float((self._used if lockstep else self.loads)[first : first + ranks].max())

    def place(self, task: RoutedEvent, first: int) -> None:
        block = slice(first, first + task.ranks)
        row = int(self._used[block].max())
        if row == len(self.micro_steps):
            self.micro_steps.append([None] * len(self.loads))
            self.longest.append(0.0)
        self.micro_steps[row][block] = task.assignments(first)
        self.longest[row] = max(self.longest[row], task.seconds)
        self.loads[block] = self.loads[block].max() + task.seconds
        self._used[block] = row + 1
