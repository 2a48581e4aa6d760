"""Steps that train parts of events, one after another: sectors alone, or ShaDow subgraphs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from bigtrk.graphs.sector import Sector
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Share, Task, lay_out
from bigtrk.sampling.shadow import ShaDow
from bigtrk.training.data.batch import Batch, BatchMaker
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
    in_step: bool

    @property
    def widths(self) -> list[int]:
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
        def read(share: Share | None) -> Batch:
            if share is None:
                return maker.empty()
            sector = self.sources[share.event].read(share.part, share.parts)
            return maker.alone(share.event, sector)

        return read

    def _routed(self, items: Sequence[int]) -> RoutedStep:
        tasks = [Task(item, 1, self.costs[item]) for item in items]
        layout = lay_out(tasks, self.world_size, self.in_step)
        events = sorted({self.sectors[item][0] for item in items})
        micro_steps = [
            [share and self._share(share) for share in row] for row in layout.micro_steps
        ]
        return RoutedStep(events, micro_steps, mini_batch=True, imbalance=layout.imbalance)

    def _share(self, share: Share) -> Share:
        event, part, parts = self.sectors[share.event]
        return Share(event, part, parts, share.first_rank)


@dataclass(frozen=True)
class ShadowSteps:
    """Steps of ShaDow mini-batches, event by event; each rank samples its share of the roots."""

    sources: list[EventSource]
    shadow: ShaDow
    seed: int
    ranks: Ranks

    @property
    def widths(self) -> list[int]:
        return []

    @property
    def per_epoch(self) -> int:
        return sum(self._batches(event) for event in range(len(self.sources)))

    def of(self, epoch: int) -> list[RoutedStep]:
        events = step_items([0.0] * len(self.sources), 1, self.seed, epoch)
        return [
            RoutedStep([event], [_OnAllRanks(share, self.ranks.world_size)], mini_batch=True)
            for [event] in events
            for parts in [self._batches(event)]
            for part in range(parts)
            for share in [Share(event, part, parts, first_rank=0)]
        ]

    def reader(self, epoch: int, maker: BatchMaker) -> Reader:
        read = _ShadowReader(self, epoch)

        def make(share: Share | None) -> Batch:
            assert share is not None, "all ranks have roots in every step"
            return maker.alone(share.event, read(share))

        return make

    def _batches(self, event: int) -> int:
        return n_steps(self.sources[event].record["nodes"], self.shadow.batch_size)


class _ShadowReader:
    """Samples the mini-batches of one event after the other, in bulks."""

    def __init__(self, steps: ShadowSteps, epoch: int) -> None:
        self._steps, self._epoch = steps, epoch
        self._event, self._next = -1, 0
        self._batches: Iterator[Sector] = iter(())

    def __call__(self, share: Share) -> Sector:
        """Returns a mini-batch; those of an event come in order, but some may be left out."""
        if share.event != self._event or share.part < self._next:
            self._open(share)
        while True:
            sector = next(self._batches)
            self._next += 1
            if self._next > share.part:
                return sector

    def _open(self, share: Share) -> None:
        steps, ranks = self._steps, self._steps.ranks
        whole = steps.sources[share.event].read(part=0, parts=1)
        self._event, self._next = share.event, share.part
        found = steps.shadow.batches(
            whole,
            ranks.device,
            (steps.seed, share.event),
            self._epoch,
            ranks.rank,
            ranks.world_size,
            share.part,
        )
        self._batches = (sector for sector, _ in found)


@dataclass(frozen=True)
class _OnAllRanks(Sequence[Share | None]):
    """The same share for each rank, in the space of one."""

    share: Share
    world_size: int

    @overload
    def __getitem__(self, rank: int) -> Share: ...
    @overload
    def __getitem__(self, rank: slice) -> list[Share | None]: ...
    def __getitem__(self, rank: int | slice) -> Share | list[Share | None]:
        places = range(self.world_size)[rank]
        return self.share if isinstance(places, int) else [self.share] * len(places)

    def __len__(self) -> int:
        return self.world_size
