"""The interface of all engines, as the training loop uses it, and the function that makes one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from bigtrk.parallel.engines.optimizers import STATE, make_optimizer, set_rates
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import Stopwatch

AVERAGE = "average"  # key of averaged weights in `Piece.values`
_ALL_ALIKE: Mapping[str, float] = {}


@dataclass(frozen=True)
class Shard:
    """The part of a parameter and of its gradient that a rank counts in norms: two tensors with the
    same number of values, or None if the rank counts nothing of the parameter.
    """

    name: str
    weight: Tensor | None = None
    gradient: Tensor | None = None


@dataclass(frozen=True)
class Piece:
    """A part of the parameter `name`, read flat, that this rank holds: from value `start` on.

    values: "weight" and those of STATE, each [n]; "weight" alone for a further copy that the engine
    keeps of the weights; AVERAGE alone for averaged weights. They are the engine's own memory:
    writing there changes the model. updates: AdamW's count of steps, a scalar, also the engine's.
    shape: the whole parameter's. written: which of the n values this rank writes to a checkpoint;
    exactly one rank writes each value of the model.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    values: dict[str, Tensor]
    updates: Tensor | None = None
    written: range = range(0)


def even_share(n: int, share: int, shares: int) -> range:
    """Returns part `share` (from 0) of n values cut into `shares` parts, equal to within one."""
    return range(n * share // shares, n * (share + 1) // shares)


def flat_values(weight: Tensor, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns flat views [n] of a parameter's weights and of its optimizer state."""
    held = {"weight": weight, **{kind: state[kind] for kind in STATE}}
    return {kind: value.detach().view(-1) for kind, value in held.items()}


class Engine(ABC):
    """One replica or shard of the model with its optimizer.

    It averages gradients over the whole world and sums them over the micro-steps of a step. So a
    rank scales its part of the loss by the world size (docs/design.md, "Exact halo training" 5).
    """

    model: nn.Module

    @abstractmethod
    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Wraps one forward and backward pass; the `last` one of a step reduces the gradients."""

    @abstractmethod
    def backward(self, loss: Tensor) -> None:
        """Computes the gradients of `loss` and adds them to those of the step."""

    @abstractmethod
    def step(self, lr: float) -> None:
        """Clips gradients, updates the weights, and clears the gradients. lr: the learning rate; a
        parameter may multiply it by a factor of its own.

        Raises:
            InputError: a gradient is not finite, if the engine would skip such a step. With other
                engines the next loss is not finite.
        """

    @abstractmethod
    def discard(self) -> None:
        """Clears the gradients instead of `step`; weights and optimizer state stay. Collective."""

    @abstractmethod
    def shards(self) -> Iterator[Shard]:
        """Yields every parameter, in one order on all ranks; exactly one rank counts each value.

        Call it between the last micro-step and `step`, when gradients are complete.
        """

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """Yields all of this rank's weights and optimizer state; call it between steps."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """Returns the whole model's weights on rank 0's CPU (elsewhere maybe none). Collective."""


class TorchEngine(Engine):
    """The common part of engines with a torch optimizer: gradients are in `parameter.grad`."""

    def __init__(
        self, model: nn.Module, optimizer: OptimizerSettings, lr_factors: Mapping[str, float]
    ) -> None:
        self.model = model
        self._optimizer = make_optimizer(model, optimizer, lr_factors)
        self._clipping = optimizer.gradient_clipping

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def step(self, lr: float) -> None:
        if self._clipping:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._clipping)
        set_rates(self._optimizer, lr)
        self._optimizer.step()
        self.discard()

    def discard(self) -> None:
        self._optimizer.zero_grad()


def share_weights(model: nn.Module) -> None:
    """Copies rank 0's weights to every rank, as FSDP2 alone does not. Collective."""
    for value in model.state_dict().values():
        dist.broadcast(value, src=0)


def make_engine(
    settings: EngineSettings,
    model: nn.Module,
    optimizer: OptimizerSettings,
    stopwatch: Stopwatch,
    lr_factors: Mapping[str, float] = _ALL_ALIKE,
) -> tuple[Engine, str]:
    """Makes the configured engine around `model`; returns it and its name ("ZeRO-1"). Collective.

    lr_factors: as `parameter_groups` takes them. Raises InputError, on all ranks, if the settings
    do not fit the ranks, or the model's parameters.
    """
    name = settings.sharding(dist.get_world_size()).name
    return settings.spec.make(settings, model, optimizer, stopwatch, lr_factors), name
