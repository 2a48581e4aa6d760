"""The parts of a model and of AdamW's state that a rank holds, in terms that name no engine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

STATE = ("exp_avg", "exp_avg_sq")  # of AdamW, beside its count of updates
AVERAGE = "average"  # of the weights, where one is kept


@dataclass(frozen=True)
class Piece:
    """Values `start`, `start` + 1, ... of the parameter `name`, read flat, as this rank holds them.

    values: "weight" and those of STATE, each [n]; "weight" alone where an engine keeps a copy;
    AVERAGE alone for averaged weights.
    They are the engine's own memory: writing there changes the model. updates: AdamW's count, a
    scalar, likewise. shape: the whole parameter's. written: the values of the n that this rank
    writes to a checkpoint; each value of the model is written by exactly one rank.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    values: dict[str, Tensor]
    updates: Tensor | None = None
    written: range = range(0)


@dataclass(frozen=True)
class Held:
    """Tensors that a rank holds of a model in training; some may share a storage, or be DTensors.

    optimizer: Adam's moments, and the parameters that it updates, which may be copies.
    """

    parameters: list[Tensor]
    gradients: list[Tensor]
    optimizer: list[Tensor]


def even_share(n: int, share: int, shares: int) -> range:
    """Returns the `share`-th of `shares` neighbouring and equal parts of n values."""
    return range(n * share // shares, n * (share + 1) // shares)


def adam_state(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """Returns AdamW's state of `parameter`; before its first update, the state it begins with."""
    state: dict[str, Tensor] = optimizer.state[parameter]
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state.update({kind: torch.zeros_like(parameter) for kind in STATE})
    return state


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Lists what `optimizer` updates, and what it keeps for that."""
    kept = [list(state.values()) for state in optimizer.state.values()]
    values = [value for state in kept for value in state if isinstance(value, Tensor)]
    return [*optimizer.state, *values]


def replica_pieces(
    model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, ranks: int
) -> Iterator[Piece]:
    """Yields the pieces of a whole copy on each rank, which all write in equal shares."""
    named = dict(model.named_parameters())
    share = even_share(sum(parameter.numel() for parameter in named.values()), rank, ranks)
    before = 0
    for name, parameter in named.items():
        state, n = adam_state(optimizer, parameter), parameter.numel()
        first, last = (min(max(end - before, 0), n) for end in (share.start, share.stop))
        yield Piece(
            name,
            tuple(parameter.shape),
            start=0,
            values=flat_values(parameter, state),
            updates=state["step"],
            written=range(first, last),
        )
        before += n


def flat_values(weight: Tensor, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns views [n] of a parameter's values and state."""
    held = {"weight": weight, **{kind: state[kind] for kind in STATE}}
    return {kind: value.detach().view(-1) for kind, value in held.items()}
