"""The gradient of a step as the training would compute it, without the step.

Shapes: P parameters' values.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bigtrk.audit.subject import Subject
from bigtrk.parallel.engines.engine import Engine, Shard
from bigtrk.parallel.engines.pieces import Held, Piece
from bigtrk.training.data.share import Share
from bigtrk.training.monitoring.norms import group_of
from bigtrk.training.step import StepRunner


class Gradient(NamedTuple):
    """The gradient of a step: values [P] in host memory, in the order of the model's parameters;
    the step's loss, its edges in the loss, and the seconds that it took.
    """

    values: Tensor
    loss: float
    edges: int
    seconds: float


class GradientEngine(Engine):
    """Computes gradients and leaves the weights as they are, which are those of `weights`.

    model: computes the results; another module than `weights` where these are computed elsewhere.
    """

    def __init__(self, weights: nn.Module, model: nn.Module) -> None:
        self.model = model
        self._weights = weights
        self._losses: list[Tensor] = []
        self.taken = torch.empty(0)

    def micro_step(self, last: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        # All at once in `step`: sectors that exchange have one graph.
        self._losses.append(loss)

    def step(self, lr: float) -> None:  # noqa: ARG002
        """Takes the gradient of all losses since the last step."""
        weights = list(self._weights.parameters())
        found = torch.autograd.grad(torch.stack(self._losses).sum(), weights)
        self.taken = torch.cat([part.flatten() for part in found]).cpu()
        self.discard()

    def discard(self) -> None:
        self._losses.clear()

    def shards(self) -> Iterator[Shard]:
        for name, weight in self._weights.named_parameters():
            yield Shard(name, weight)

    def pieces(self) -> Iterator[Piece]:
        return iter(())  # there is no optimizer whose state could be kept

    def held(self) -> Held:
        return Held(list(self._weights.parameters()), [], [])

    def weights(self) -> dict[str, Tensor]:
        return {name: value.cpu() for name, value in self._weights.state_dict().items()}


def gradient_of(
    subject: Subject,
    model: nn.Module,
    event: int,
    shares: Sequence[Share],
    computed: nn.Module | None = None,
) -> Gradient:
    """Computes the gradient of a step of `shares` of one event.

    computed: gives what `model` makes of each share, where that is known already.

    Raises:
        InputError: the loss is not finite.
    """
    engine = GradientEngine(model, computed or model)
    runner = StepRunner(engine, subject.configuration.training, subject.world)
    begin = time.perf_counter()
    result = runner.run([event], shares, lr=0.0)
    return Gradient(engine.taken, result.loss, result.edges, time.perf_counter() - begin)


def exact_gradient(subject: Subject, model: nn.Module, event: int) -> Gradient:
    """Computes the gradient of a whole event's loss.

    Raises:
        InputError: the event cannot be read, or its loss is not finite.
    """
    whole = subject.maker.whole(event, subject.sources)
    return gradient_of(subject, model, event, [whole])


def parts_of(model: nn.Module) -> dict[str, Tensor]:
    """Finds the values of a gradient [P] that are of each part of the model, as norms name it."""
    found: dict[str, list[Tensor]] = {}
    end = 0
    for name, parameter in model.named_parameters():
        begin, end = end, end + parameter.numel()
        found.setdefault(group_of(name), []).append(torch.arange(begin, end))
    return {name: torch.cat(values) for name, values in found.items()}
