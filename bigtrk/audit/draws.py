"""Draws of mini-batch gradients, beside the exact gradients of whole events."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigtrk.audit.estimates import Floats, products, statistics
from bigtrk.audit.gradients import Gradient, exact_gradient, gradient_of
from bigtrk.audit.names import Way
from bigtrk.audit.subject import Subject
from bigtrk.console import follow
from bigtrk.errors import InputError
from bigtrk.records.audit import DrawnWay, DrawStatistics
from bigtrk.training.data.loader import Loader
from bigtrk.training.steps.choose import choose_steps

Draw = tuple[int, Gradient]  # the number of the event, and the gradient


@dataclass(frozen=True)
class Exact:
    """The exact gradient of each event at some weights, and the parts of the model that their
    values are of.
    """

    gradients: Sequence[Gradient]
    parts: dict[str, Tensor]

    @property
    def mean(self) -> Tensor:
        """Averages over events: the exact gradient of the loss of all."""
        return torch.stack([one.values for one in self.gradients]).double().mean(0)

    @property
    def loss(self) -> float:
        return fmean(one.loss for one in self.gradients)


def exact_gradients(
    subject: Subject, model: nn.Module, parts: dict[str, Tensor], shown: str
) -> Exact:
    """Computes the exact gradient of every event.

    Raises:
        InputError: a loss is not finite, or all gradients are zero.
    """
    events = _followed(len(subject.sources), f"{shown}: exact")
    exact = Exact([exact_gradient(subject, model, event) for event in events], parts)
    if not exact.mean.any():
        folder = subject.sources[0].folder.path
        raise InputError(
            f"{folder}: the loss of its events has no gradient, as that of events without edges or "
            f"target particles; name other events, or check the run's target"
        )
    return exact


def draw_events(exact: Exact) -> DrawnWay:
    """Takes each event as one draw: their noise is that from event to event."""
    return _record(Way.EVENTS, list(enumerate(exact.gradients)), exact)


def draw_mini_batches(
    way: Way, subject: Subject, model: nn.Module, exact: Exact, draws: int, shown: str
) -> DrawnWay:
    """Draws mini-batches as training would make them in one of the `DRAWN` ways.

    Raises:
        InputError: a mini-batch cannot be made, or its loss is not finite.
    """
    drawing = subject.drawing(way)
    numbers = _followed(draws, f"{shown}: {way}")
    return _record(way, list(_drawn(drawing, model, numbers)), exact)


def _drawn(subject: Subject, model: nn.Module, numbers: Iterable[int]) -> Iterator[Draw]:
    """Draws a step of an epoch for each number; of one epoch two would not be independent."""
    steps = choose_steps(subject.configuration, subject.world.ranks, subject.sources)
    seed = subject.configuration.training.seed
    for epoch in numbers:
        routes = steps.of(epoch)
        step = routes[np.random.default_rng((seed, epoch)).integers(len(routes))]
        shares = Loader(steps.reader(epoch, subject.maker), subject.world).load(step.micro_steps)
        [event] = step.events
        yield event, gradient_of(subject, model, event, shares)


def _followed(total: int, what: str) -> Iterator[int]:
    return follow(range(total), total, what)


def _record(way: Way, draws: Sequence[Draw], exact: Exact) -> DrawnWay:
    events = np.array([event for event, _ in draws])
    drawn = _matrix([gradient.values for _, gradient in draws])
    of_events, target = _matrix([one.values for one in exact.gradients]), exact.mean.numpy()

    def estimated(values: NDArray[np.int64] | slice) -> DrawStatistics:
        same_events = of_events[:, values][events]
        return statistics(products(drawn[:, values], same_events, target[values], events))

    return DrawnWay(
        way=way.value,
        draws=len(draws),
        edges=fmean(gradient.edges for _, gradient in draws),
        event_edges=fmean(one.edges for one in exact.gradients),
        seconds=median(gradient.seconds for _, gradient in draws),
        whole=estimated(slice(None)),
        parts={name: estimated(values.numpy()) for name, values in exact.parts.items()},
    )


def _matrix(gradients: Sequence[Tensor]) -> Floats:
    return torch.stack(list(gradients)).double().numpy()
