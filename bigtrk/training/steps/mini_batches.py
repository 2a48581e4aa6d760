"""Steps that train parts of events, one after another: sectors alone, or ShaDow subgraphs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from bigtrk.graphs.sector import Sector
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Assignment, Cut, RoutedEvent, lay_out
from bigtrk.sampling.shadow import ShaDow
from bigtrk.training.data.batch import BatchMaker, Share
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import TrainingSettings
from bigtrk.training.steps.batching import n_steps, step_items
from bigtrk.training.steps.epoch_steps import Reader
from bigtrk.training.steps.routed_step import RoutedStep


@dataclass(frozen=True)
class SectorSteps:
    """Steps of sectors, each trained without the event's others; `costs` in the sectors' order.

    sectors: (event, part, parts) of all events.
    """

    sources: list[EventSource]
    sectors: Sequence[tuple[int, int, int]]
    costs: Sequence[float]
    settings: TrainingSettings
    world_size: int
    lockstep: bool

    @property
    def num_ranks(self) -> list[int]:
        return []

    @property
    def per_epoch(self) -> int:
        return n_steps(len(self.sectors), self.settings.events_per_step)

    def of(self, epoch: int) -> list[RoutedStep]:
        training = self.settings
        return [
            self._routed(items)
            for items in step_items(
                self.costs, training.events_per_step, training.seed, epoch, training.batching
            )
        ]

    def reader(self, epoch: int, maker: BatchMaker) -> Reader:  # noqa: ARG002  # all are alike
        def read(assignment: Assignment | None) -> Share:
            if assignment is None:
                return maker.empty()
            sector = self.sources[assignment.event].read(assignment.part, assignment.parts)
            return maker.alone(assignment.event, sector)

        return read

    def _routed(self, items: Sequence[int]) -> RoutedStep:
        layout = lay_out([self._task(item) for item in items], self.world_size, self.lockstep)
        events = sorted({self.sectors[item][0] for item in items})
        return RoutedStep(events, layout.micro_steps, mini_batch=True, imbalance=layout.imbalance)

    def _task(self, item: int) -> RoutedEvent:
        event, part, parts = self.sectors[item]
        return RoutedEvent(event, Cut(parts, 1), self.costs[item], part)


@dataclass(frozen=True)
class ShadowSteps:
    """Steps of ShaDow mini-batches, event by event; each rank samples its share of the roots."""

    sources: list[EventSource]
    shadow: ShaDow
    seed: int
    ranks: Ranks

    @property
    def num_ranks(self) -> list[int]:
        return []

    @property
    def per_epoch(self) -> int:
        return sum(self._batches(event) for event in range(len(self.sources)))

    def of(self, epoch: int) -> list[RoutedStep]:
        events = step_items([0.0] * len(self.sources), 1, self.seed, epoch)
        return [
            RoutedStep([event], [_OnAllRanks(assignment, self.ranks.world_size)], mini_batch=True)
            for [event] in events
            for parts in [self._batches(event)]
            for part in range(parts)
            for assignment in [Assignment(event, (part,), parts, first_rank=0)]
        ]

    def reader(self, epoch: int, maker: BatchMaker) -> Reader:
        read = _ShadowReader(self, epoch)

        def make(assignment: Assignment | None) -> Share:
            assert assignment is not None, "all ranks have roots in every step"
            return maker.alone(assignment.event, read(assignment))

        return make

    def _batches(self, event: int) -> int:
        return n_steps(self.sources[event].record["nodes"], self.shadow.batch_size)


class _ShadowReader:
    """Samples the mini-batches of one event after the other, in bulks."""

    def __init__(self, steps: ShadowSteps, epoch: int) -> None:
        self._steps, self._epoch = steps, epoch
        self._event, self._next = -1, 0
        self._batches: Iterator[Sector] = iter(())

    def __call__(self, assignment: Assignment) -> Sector:
        """Returns a mini-batch; those of an event come in order, but some may be left out."""
        if assignment.event != self._event or assignment.part < self._next:
            self._open(assignment)
        while True:
            sector = next(self._batches)
            self._next += 1
            if self._next > assignment.part:
                return sector

    def _open(self, assignment: Assignment) -> None:
        steps, ranks = self._steps, self._steps.ranks
        whole = steps.sources[assignment.event].read(part=0, parts=1)
        self._event, self._next = assignment.event, assignment.part
        self._batches = steps.shadow.batches(
            whole,
            ranks.device,
            (steps.seed, assignment.event),
            self._epoch,
            ranks.rank,
            ranks.world_size,
            assignment.part,
        )


@dataclass(frozen=True)
class _OnAllRanks(Sequence[Assignment | None]):
    """The same assignment for each rank, in the space of one."""

    assignment: Assignment
    world_size: int

    @overload
    def __getitem__(self, rank: int) -> Assignment: ...
    @overload
    def __getitem__(self, rank: slice) -> list[Assignment | None]: ...
    def __getitem__(self, rank: int | slice) -> Assignment | list[Assignment | None]:
        places = range(self.world_size)[rank]
        return self.assignment if isinstance(places, int) else [self.assignment] * len(places)

    def __len__(self) -> int:
        return self.world_size
