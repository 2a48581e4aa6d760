"""Learning rates by the names of parameters: groups of an optimizer, each with its factor."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import Parameter

from bigtrk.errors import InputError, one_line

_FACTOR = "lr_factor"  # of a group, beside torch's own keys


def parameter_groups(model: nn.Module, factors: Mapping[str, float]) -> list[dict[str, Any]]:
    """Groups parameters by the factor of the first pattern that matches their name, or 1.

    factors: by pattern, in which `*` stands for any text, `?` for any letter and `[ab]` for one of
    these.

    Raises:
        InputError: a pattern matches no name, or only such as others before it match.
    """
    left, groups = dict(model.named_parameters()), dict[float, list[Parameter]]()
    for pattern, factor in factors.items():
        names = [name for name in left if fnmatchcase(name, pattern)]
        if not names:
            raise InputError(_no_match(model, pattern))
        groups.setdefault(factor, []).extend(left.pop(name) for name in names)
    groups.setdefault(1.0, []).extend(left.values())
    return [{"params": found, _FACTOR: factor} for factor, found in groups.items() if found]


def set_rates(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Gives each group its learning rate, where `lr` is that of the factor 1."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group[_FACTOR]


def _no_match(model: nn.Module, pattern: str) -> str:
    names = [name for name, _ in model.named_parameters()]
    told = f"training.lr_factors: {one_line(repr(pattern))} matches no parameter"
    if any(fnmatchcase(name, pattern) for name in names):
        return f"{told} that no pattern before it matches; remove it, or put it first"
    parts = dict.fromkeys(f"{name.split('.')[0]}.*" for name in names)
    return f"{told}; those of the model's parts are {', '.join(parts)}"
