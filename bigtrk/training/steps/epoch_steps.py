"""The steps of an epoch: those of events here, those of parts of events in mini_batches.py.

A step depends on (seed, epoch, cursor) alone, however many ranks share it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bigtrk.parallel.routing import Assignment, Router
from bigtrk.training.data.batch import BatchMaker, Share
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import TrainingSettings
from bigtrk.training.steps.batching import n_steps, step_items
from bigtrk.training.steps.routed_step import RoutedStep

Reader = Callable[[Assignment | None], Share]


class EpochSteps(Protocol):
    """The steps of each epoch, `per_epoch` of them, and the reader of a rank's shares of them.

    num_ranks: the numbers of ranks that share an event.
    """

    @property
    def num_ranks(self) -> list[int]: ...

    @property
    def per_epoch(self) -> int: ...

    def of(self, epoch: int) -> list[RoutedStep]: ...

    def reader(self, epoch: int, maker: BatchMaker) -> Reader: ...


@dataclass(frozen=True)
class EventSteps:
    """Steps of events, whole or in sectors with halo exchange; `costs` as step_items takes them."""

    sources: list[EventSource]
    router: Router
    costs: Sequence[float]
    settings: TrainingSettings

    @property
    def num_ranks(self) -> list[int]:
        return self.router.num_ranks

    @property
    def per_epoch(self) -> int:
        return n_steps(len(self.sources), self.settings.events_per_step)

    def of(self, epoch: int) -> list[RoutedStep]:
        training = self.settings
        steps = step_items(
            self.costs, training.events_per_step, training.seed, epoch, training.batching
        )
        layouts = ((events, self.router.layout(events)) for events in steps)
        return [
            RoutedStep(events, layout.micro_steps, imbalance=layout.imbalance)
            for events, layout in layouts
        ]

    def reader(self, epoch: int, maker: BatchMaker) -> Reader:  # noqa: ARG002  # all are alike
        return maker.of(self.sources)
