"""Steps that train wedges of events, which no file has to hold: cut anew in every epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bigtrk.parallel.routing import Assignment, Cut, RoutedEvent, lay_out
from bigtrk.sampling.wedges import cut_wedge, turn
from bigtrk.training.data.batch import BatchMaker, Share
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import TrainingSettings
from bigtrk.training.steps.batching import n_steps, step_items
from bigtrk.training.steps.epoch_steps import Reader
from bigtrk.training.steps.routed_step import RoutedStep


@dataclass(frozen=True)
class WedgeSteps:
    """Steps of wedges, `wedges` to an event; `costs` of a wedge of each event.

    Where an event's wedges begin, and how each is turned and mirrored, depends on the seed, the
    epoch and the event alone.
    """

    sources: list[EventSource]
    wedges: int
    costs: Sequence[float]
    settings: TrainingSettings
    world_size: int
    lockstep: bool

    @property
    def num_ranks(self) -> list[int]:
        return []

    @property
    def per_epoch(self) -> int:
        return n_steps(len(self.sources) * self.wedges, self.settings.events_per_step)

    def of(self, epoch: int) -> list[RoutedStep]:
        training = self.settings
        costs = [cost for cost in self.costs for _ in range(self.wedges)]
        steps = step_items(costs, training.events_per_step, training.seed, epoch, training.batching)
        return [self._routed(wedges) for wedges in steps]

    def reader(self, epoch: int, maker: BatchMaker) -> Reader:
        def read(assignment: Assignment | None) -> Share:
            if assignment is None:
                return maker.empty()
            event, part = assignment.event, assignment.part
            whole = self.sources[event].read(part=0, parts=1)
            generator = np.random.default_rng((self.settings.seed, epoch, event))
            offset = 2 * math.pi * generator.random()
            angle, in_phi, in_z = generator.random((self.wedges, 3))[part].tolist()
            wedge = cut_wedge(whole, part, self.wedges, offset)
            return maker.alone(event, turn(wedge, 2 * math.pi * angle, in_phi < 0.5, in_z < 0.5))

        return read

    def _routed(self, wedges: Sequence[int]) -> RoutedStep:
        layout = lay_out([self._task(i) for i in wedges], self.world_size, self.lockstep)
        events = sorted({i // self.wedges for i in wedges})
        return RoutedStep(events, layout.micro_steps, mini_batch=True, imbalance=layout.imbalance)

    def _task(self, i: int) -> RoutedEvent:
        event, part = divmod(i, self.wedges)
        return RoutedEvent(event, Cut(self.wedges, 1), self.costs[event], part)
