"""The steps of each epoch: their events, or parts of events, and the ranks that compute them.

A step depends only on (seed, epoch, cursor) and the costs of its items, not on the number of ranks.
Items are whole events, which may be cut over ranks, or parts that are trained alone: stored
sectors, wedges cut anew in every epoch, or ShaDow mini-batches.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import Sector
from bigtrk.parallel.collectives import check_agreement, on_first_rank
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import (
    Assignment,
    Cut,
    MicroStep,
    RoutedEvent,
    Router,
    as_stored,
    lay_out,
)
from bigtrk.sampling.shadow import ShaDow
from bigtrk.sampling.subgraphs import Walk
from bigtrk.sampling.wedges import cut_wedge, turn
from bigtrk.training.data.batch import BatchMaker, Share
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.fitting import fitting_cuts, memory_budget, operations, remedy
from bigtrk.training.settings import Batching, Configuration, TrainingSettings

# Steps in a bucket: the fewer, the more alike its items and the fewer ways to combine them.
_BUCKET_STEPS = 4
# Costs vary by up to this factor when `cost` sorts them, so that each epoch combines others.
_JITTER = 1.5

Reader = Callable[[Assignment | None], Share]


def step_items(
    costs: Sequence[float], per_step: int, seed: int, epoch: int, batching: Batching = "random"
) -> list[list[int]]:
    """Returns the epoch's steps, each a list of item numbers; each item is in exactly one step. A
    step has `per_step` items at random (`random`), `per_step` items of similar cost (`buckets`;
    Farrell 2020, after Etalumis, arXiv:1907.03382), or a similar total cost as others (`cost`).
    """
    generator = np.random.default_rng((seed, epoch))
    if batching == "cost":
        return _packed(np.asarray(costs, float), _n_steps(len(costs), per_step), generator)
    if batching == "random":
        return _cut(generator.permutation(len(costs)).tolist(), per_step)
    order = np.argsort(costs, kind="stable")
    buckets = _cut(order.tolist(), per_step * _BUCKET_STEPS)
    shuffled = (generator.permutation(bucket).tolist() for bucket in buckets)
    steps = [step for bucket in shuffled for step in _cut(bucket, per_step)]
    return [steps[i] for i in generator.permutation(len(steps))]


def _n_steps(n_items: int, per_step: int) -> int:
    return -(-n_items // per_step)


def _cut(order: list[int], size: int) -> list[list[int]]:
    return [order[i : i + size] for i in range(0, len(order), size)]


def _packed(
    costs: NDArray[np.float64], steps: int, generator: np.random.Generator
) -> list[list[int]]:
    """Packs items into `steps` bins of similar cost: in each round, larger ones to emptier bins."""
    order = np.argsort(-costs * generator.uniform(1, _JITTER, len(costs)))
    made: list[list[int]] = [[] for _ in range(steps)]
    loads = np.zeros(steps)
    for items in (order[i : i + steps] for i in range(0, len(order), steps)):
        largest = items[np.argsort(-costs[items])]
        lightest = np.argsort(loads, kind="stable")[: len(items)]
        loads[lightest] += costs[largest]
        for step, item in zip(lightest.tolist(), largest.tolist(), strict=True):
            made[step].append(item)
    return [made[i] for i in generator.permutation(steps)]


@dataclass(frozen=True)
class RoutedStep:
    """A step: its event numbers, and each rank's assignment in each micro-step. mini_batch: true
    for parts of events. imbalance: the most loaded rank's work over the mean, if predicted.
    """

    events: Sequence[int]
    micro_steps: Sequence[MicroStep]
    mini_batch: bool = False
    imbalance: float | None = None

    @property
    def cuts(self) -> dict[int, Cut]:
        """Returns the cut of each event, by number; {} for mini-batches."""
        if self.mini_batch:
            return {}
        ranks: dict[tuple[int, int], set[int]] = defaultdict(set)
        for micro_step in self.micro_steps:
            for rank, share in enumerate(micro_step):
                if share:
                    ranks[share.event, share.parts].add(rank)
        return {event: Cut(parts, len(on)) for (event, parts), on in ranks.items()}

    @property
    def busy_ranks(self) -> int:
        """Counts the ranks that have an event, or a share of one, in the step."""
        return sum(any(places) for places in zip(*self.micro_steps, strict=True))


def check_routes(steps: Sequence[RoutedStep]) -> None:
    """Raises InputError on all ranks if they have different routes. Collective."""
    micro_steps = sum(len(step.micro_steps) for step in steps)
    digest = hashlib.sha256(repr([step.micro_steps for step in steps]).encode()).hexdigest()[:12]
    check_agreement({"routing": f"{micro_steps} micro-steps of digest {digest}"})


@dataclass(frozen=True)
class EventSteps:
    """Steps of whole events, or of their sectors with halo exchange. costs: by event."""

    sources: list[EventSource]
    router: Router
    costs: Sequence[float]
    settings: TrainingSettings

    @property
    def per_epoch(self) -> int:
        return _n_steps(len(self.sources), self.settings.events_per_step)

    def of(self, epoch: int) -> list[RoutedStep]:
        steps = []
        for events in _items_of(self.costs, self.settings, epoch):
            layout = self.router.layout(events)
            steps.append(RoutedStep(events, layout.micro_steps, imbalance=layout.imbalance))
        return steps

    def reader(self, epoch: int, maker: BatchMaker) -> Reader:  # noqa: ARG002  # all are alike
        return maker.of(self.sources)


@dataclass(frozen=True)
class PartSteps:
    """Steps of parts of events, each trained alone by one rank. parts: (event, part, number of the
    event's parts). costs: by part. read: reads a part, given the epoch and its assignment.
    """

    parts: Sequence[tuple[int, int, int]]
    costs: Sequence[float]
    read: Callable[[int, Assignment], Sector]
    settings: TrainingSettings
    world_size: int
    lockstep: bool

    @property
    def per_epoch(self) -> int:
        return _n_steps(len(self.parts), self.settings.events_per_step)

    def of(self, epoch: int) -> list[RoutedStep]:
        steps = []
        for items in _items_of(self.costs, self.settings, epoch):
            tasks = []
            for item in items:
                event, part, parts = self.parts[item]
                tasks.append(RoutedEvent(event, Cut(parts, 1), self.costs[item], part))
            layout = lay_out(tasks, self.world_size, self.lockstep)
            events = sorted({task.event for task in tasks})
            steps.append(RoutedStep(events, layout.micro_steps, True, layout.imbalance))
        return steps

    def reader(self, epoch: int, maker: BatchMaker) -> Reader:
        def read(assignment: Assignment | None) -> Share:
            if assignment is None:
                return maker.empty()
            return maker.alone(assignment.event, self.read(epoch, assignment))

        return read


def _items_of(costs: Sequence[float], settings: TrainingSettings, epoch: int) -> list[list[int]]:
    return step_items(costs, settings.events_per_step, settings.seed, epoch, settings.batching)


def read_sector(sources: Sequence[EventSource], _epoch: int, assignment: Assignment) -> Sector:
    """Reads the stored sector of an assignment, the same in every epoch."""
    return sources[assignment.event].read(assignment.part, assignment.parts)


def read_wedge(
    sources: Sequence[EventSource], seed: int, epoch: int, assignment: Assignment
) -> Sector:
    """Cuts the wedge of an assignment, rotated and mirrored at random by seed, epoch and event."""
    event, part, wedges = assignment.event, assignment.part, assignment.parts
    whole = sources[event].read(part=0, parts=1)
    generator = np.random.default_rng((seed, epoch, event))
    offset = 2 * math.pi * generator.random()
    angle, in_phi, in_z = generator.random((wedges, 3))[part].tolist()
    wedge = cut_wedge(whole, part, wedges, offset)
    return turn(wedge, 2 * math.pi * angle, in_phi < 0.5, in_z < 0.5)


@dataclass(frozen=True)
class ShadowSteps:
    """Steps of ShaDow mini-batches, event by event; each rank samples subgraphs of its roots."""

    sources: list[EventSource]
    shadow: ShaDow
    seed: int
    ranks: Ranks

    @property
    def per_epoch(self) -> int:
        return sum(self._batches(event) for event in range(len(self.sources)))

    def of(self, epoch: int) -> list[RoutedStep]:
        steps = []
        for [event] in step_items([0.0] * len(self.sources), 1, self.seed, epoch):
            parts = self._batches(event)
            for part in range(parts):
                on_all = [Assignment(event, (part,), parts, first_rank=0)] * self.ranks.world_size
                steps.append(RoutedStep([event], [on_all], mini_batch=True))
        return steps

    def reader(self, epoch: int, maker: BatchMaker) -> Reader:
        """Returns a reader of mini-batches, asked for in order; some may be skipped."""
        batches: Iterator[Sector] = iter(())
        event, after = -1, 0

        def read(assignment: Assignment | None) -> Share:
            nonlocal batches, event, after
            assert assignment is not None, "all ranks have roots in every step"
            if assignment.event != event or assignment.part < after:
                event, after = assignment.event, assignment.part
                batches = self._sampled(event, epoch, first=after)
            while True:
                sector, after = next(batches), after + 1
                if after > assignment.part:
                    return maker.alone(event, sector)

        return read

    def _sampled(self, event: int, epoch: int, first: int) -> Iterator[Sector]:
        whole, ranks = self.sources[event].read(part=0, parts=1), self.ranks
        seed = self.seed, event
        return self.shadow.batches(
            whole, ranks.device, seed, epoch, ranks.rank, ranks.world_size, first
        )

    def _batches(self, event: int) -> int:
        return _n_steps(self.sources[event].record["nodes"], self.shadow.batch_size)


# Each has `per_epoch`, `of` (an epoch's steps) and `reader` (reads a rank's share of a step).
EpochSteps = EventSteps | PartSteps | ShadowSteps


def choose_steps(
    configuration: Configuration, ranks: Ranks, sources: list[EventSource]
) -> EpochSteps:
    """Makes the steps by `sampling.method`. Collective. Raises InputError if events do not fit."""
    training, sampling = configuration.training, configuration.sampling
    lockstep = configuration.engine.sharding(ranks.world_size).lockstep
    match sampling.method:
        case "none":
            router = training_router(configuration, ranks, sources)
            sizes = [_size(source) for source in sources]
            costs = on_first_rank(operations, configuration, sizes)
            return EventSteps(sources, router, costs, training)
        case "sectors":
            parts = [(i, p, one.parts) for i, one in enumerate(sources) for p in range(one.parts)]
            sizes = [size for source in sources for size in _sizes_of_parts(source)]
            read: Callable[[int, Assignment], Sector] = partial(read_sector, sources)
        case "wedges":
            n = sampling.wedges
            parts = [(event, part, n) for event in range(len(sources)) for part in range(n)]
            sizes = [(nodes / n, edges / n) for nodes, edges in map(_size, sources)]
            sizes = [size for size in sizes for _ in range(n)]
            read = partial(read_wedge, sources, training.seed)
        case "shadow":
            walk = Walk(sampling.depth, sampling.fanout)
            shadow = ShaDow(walk, sampling.batch_size, sampling.bulk)
            return ShadowSteps(sources, shadow, training.seed, ranks)
    # Rank 0 computes costs for all: hosts may round differently.
    costs = on_first_rank(operations, configuration, sizes)
    return PartSteps(parts, costs, read, training, ranks.world_size, lockstep)


def _size(source: EventSource) -> tuple[float, float]:
    return source.record["nodes"], source.record["edges"]


def _sizes_of_parts(source: EventSource) -> list[tuple[float, float]]:
    """Returns (nodes, edges) of each stored sector, or of the whole event."""
    if source.parts == 1:
        return [_size(source)]
    sectors = source.record["sectors"]
    return [(sector["owned"] + sector["halo"], sector["edges"]) for sector in sectors]


def scoring_router(
    sources: Sequence[EventSource], world_size: int, several: bool = False
) -> Router:
    """Makes a router of events in their stored sectors. several: a rank may hold more than one."""
    sizes = [(source.parts, source.record["edges"]) for source in sources]
    return as_stored(sizes, world_size, several=several)


def training_router(
    configuration: Configuration, ranks: Ranks, sources: Sequence[EventSource]
) -> Router:
    """Makes a router with the work of each event, and its cuts that fit. Rank 0 computes both,
    since hosts may round differently. Collective. Raises InputError if events do not fit.
    """
    budget = memory_budget(configuration, ranks)

    def fit() -> Router:
        cuts = fitting_cuts(configuration, ranks, len(sources), budget)
        sizes = [source.size for source in sources]
        fitting = [cuts.fitting(size) for size in sizes]
        oversized = [i for i, fits in enumerate(fitting) if not fits]
        if oversized:
            raise InputError(remedy([(sources[i], sizes[i]) for i in oversized], cuts))
        return Router(fitting, ranks.world_size, cuts.cost.sharding.lockstep, cuts.apart)

    return on_first_rank(fit)
