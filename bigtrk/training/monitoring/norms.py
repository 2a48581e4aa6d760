"""Norms of gradients and weights by part of the model, whichever way ranks share it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from bigtrk.parallel.engines.engine import Engine
from bigtrk.records.metrics import NormsRecord


@dataclass(frozen=True)
class Norms:
    """Euclidean norms by group, the same on all ranks: of a step's gradients before clipping, of
    the weights before the update.

    A group is a module of the model, or one of a list of them: `node_encoder`, `layers.0`.
    """

    gradient: dict[str, float]
    weight: dict[str, float]

    @property
    def finite_gradient(self) -> bool:
        return all(math.isfinite(norm) for norm in self.gradient.values())

    def record(self) -> NormsRecord:
        """Makes the norms of the step's record; None for what is not finite."""
        return NormsRecord(gradient=_finite(self.gradient), weight=_finite(self.weight))


def _finite(norms: dict[str, float]) -> dict[str, float | None]:
    return {name: x if math.isfinite(x) else None for name, x in norms.items()}


@torch.no_grad()
def local_squares(engine: Engine, device: torch.device) -> tuple[list[str], Tensor]:
    """Returns groups and the squared norms [2, groups] float64 of this rank's gradients, weights.

    Summed over ranks they are those of the model: nothing is gathered.
    """
    gradients: dict[str, list[Tensor]] = {}
    weights: dict[str, list[Tensor]] = {}
    for shard in engine.shards():
        for parts, part in ((gradients, shard.gradient), (weights, shard.weight)):
            parts.setdefault(group_of(shard.name), []).extend([] if part is None else [part])
    norms = [get_total_norm(held).to(device) for held in (*gradients.values(), *weights.values())]
    return list(weights), torch.stack(norms).double().square().view(2, -1)


def norms_of(groups: Sequence[str], squares: Tensor) -> Norms:
    """Makes norms of the squares [2, groups] summed over ranks."""
    gradient, weight = squares.sqrt().tolist()
    return Norms(dict(zip(groups, gradient, strict=True)), dict(zip(groups, weight, strict=True)))


def group_of(parameter: str) -> str:
    """Returns the group of a parameter's dotted name."""
    first, *rest = parameter.split(".")
    return f"{first}.{rest[0]}" if rest and rest[0].isdigit() else first
