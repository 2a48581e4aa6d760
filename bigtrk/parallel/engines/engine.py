"""The interface of all engines: what the training loop asks of one."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bigtrk.parallel.engines.muon import MuonAndAdamW
from bigtrk.parallel.engines.pieces import Held, Piece, optimizer_tensors
from bigtrk.parallel.engines.rates import parameter_groups, set_rates
from bigtrk.parallel.settings import OptimizerSettings


@dataclass(frozen=True)
class Shard:
    """The part of a parameter and of its gradient that a rank counts: tensors of the same number of
    values, or None where it counts nothing of it.
    """

    name: str
    weight: Tensor | None = None
    gradient: Tensor | None = None


class Engine(ABC):
    """One replica or shard of the model with its optimizer.

    Gradients are averaged over the whole world and summed over the micro-steps of a step, so a
    rank scales its part of the loss by the world size (docs/design.md, "Exact halo training" 5).
    """

    model: nn.Module

    @abstractmethod
    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Wraps one forward and backward; gradients are reduced after the `last` of a step."""

    @abstractmethod
    def backward(self, loss: Tensor) -> None:
        """Accumulates the gradients of `loss`."""

    @abstractmethod
    def step(self, lr: float) -> None:
        """Clips, updates the weights at learning rate `lr`, times the factor that a parameter has,
        and clears the gradients.

        Raises:
            InputError: a gradient is not finite, where the engine would drop such a step. With
                others the next loss is not.
        """

    @abstractmethod
    def discard(self) -> None:
        """Clears the gradients instead of `step`; weights and optimizer state stay. Collective."""

    @abstractmethod
    def shards(self) -> Iterator[Shard]:
        """Yields every parameter, in one order on all ranks; exactly one rank counts each value.

        Gradients are whole, and there, between the last micro-step and `step`.
        """

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """Yields all that this rank holds of weights and optimizer state, between steps."""

    @abstractmethod
    def held(self) -> Held:
        """Lists the tensors that this rank holds, for measuring what an engine keeps."""

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

    def held(self) -> Held:
        parameters = list(self.model.parameters())
        gradients = [p.grad for p in parameters if p.grad is not None]
        return Held([p.data for p in parameters], gradients, optimizer_tensors(self._optimizer))


def share_weights(model: nn.Module) -> None:
    """Gives every rank rank 0's weights. Collective.

    DDP and DeepSpeed do so themselves; FSDP2 does not, so that replicas that began differently
    would stay different, without any error.
    """
    for value in model.state_dict().values():
        dist.broadcast(value, src=0)


def make_optimizer(
    model: nn.Module, settings: OptimizerSettings, lr_factors: Mapping[str, float]
) -> torch.optim.Optimizer:
    """Makes the optimizer of all engines, so that they train alike.

    Raises:
        InputError: a pattern of `lr_factors` matches no parameter, or Muon finds no matrix.
    """
    groups = parameter_groups(model, lr_factors)
    if settings.name == "muon":
        return MuonAndAdamW(groups, settings)
    return torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay)
