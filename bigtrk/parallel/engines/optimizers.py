"""The optimizers of all engines, and learning rates by the names of parameters.

Muon updates hidden matrices, AdamW all else (Jordan et al. 2024; Liu et al. 2025).
"""

import inspect
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from bigtrk.errors import InputError, one_line
from bigtrk.parallel.settings import OptimizerSettings

STATE = ("exp_avg", "exp_avg_sq")  # AdamW's state, without its count of updates
# Matrices with fewer rows or columns read features or give scores: first layers and outputs.
NARROWEST = 16
_FACTOR = "lr_factor"  # our key in a parameter group


def make_optimizer(
    model: nn.Module, settings: OptimizerSettings, lr_factors: Mapping[str, float]
) -> torch.optim.Optimizer:
    """Makes the optimizer; all engines use it, so that they train alike. Raises InputError if a
    pattern of `lr_factors` matches no parameter, or Muon finds no matrix.
    """
    groups = parameter_groups(model, lr_factors)
    if settings.name == "muon":
        return MuonAndAdamW(groups, settings)
    return AdamW(groups, **_adamw_options(groups, settings))


def _without_compiler(kind: Any) -> Any:
    """Strips an optimizer of the wrappers by which torch keeps its compiler away from it. They
    import it, which takes 1.5 s of CPU and 68 MiB besides the pages of files (torch 2.13).
    """
    for name in ("add_param_group", "load_state_dict", "state_dict", "step", "zero_grad"):
        setattr(kind, name, inspect.unwrap(getattr(kind, name)))
    kind.step = torch.no_grad()(kind.step)
    return kind


@_without_compiler
class AdamW(torch.optim.AdamW):
    """AdamW as torch computes it, not to be compiled."""


@_without_compiler
class _Muon(torch.optim.Muon):
    pass


def _adamw_options(groups: Sequence[dict[str, Any]], settings: OptimizerSettings) -> dict[str, Any]:
    """Returns AdamW's options; on GPUs one launch updates all parameters."""
    on_gpu = all(parameter.is_cuda for group in groups for parameter in group["params"])
    fused = True if on_gpu else None  # torch chooses among the others
    return {"lr": settings.lr, "weight_decay": settings.weight_decay, "fused": fused}


def parameter_groups(model: nn.Module, factors: Mapping[str, float]) -> list[dict[str, Any]]:
    """Groups parameters by the factor of the first pattern that matches their name, else by 1.

    factors: pattern -> factor. In a pattern `*` stands for any text, `?` for any letter and `[ab]`
    for one of these letters. Raises InputError if a pattern matches no name, or only names that an
    earlier pattern matches.
    """
    left, groups = dict(model.named_parameters()), dict[float, list[Parameter]]()
    for pattern, factor in factors.items():
        names = [name for name in left if fnmatchcase(name, pattern)]
        if not names:
            raise InputError(_no_match(model, pattern))
        groups.setdefault(factor, []).extend(left.pop(name) for name in names)
    groups.setdefault(1.0, []).extend(left.values())
    return [{"params": found, _FACTOR: factor} for factor, found in groups.items() if found]


def _no_match(model: nn.Module, pattern: str) -> str:
    names = [name for name, _ in model.named_parameters()]
    where, told = "training.lr_factors", one_line(repr(pattern))
    if any(fnmatchcase(name, pattern) for name in names):
        return f"{where}: earlier patterns match all of {told}; remove it, or put it first"
    parts = dict.fromkeys(f"{name.split('.')[0]}.*" for name in names)
    return f"{where}: {told} matches no parameter; the model's parts are {', '.join(parts)}"


def set_rates(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of each group to `lr` times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group[_FACTOR]


def adam_state(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """Returns AdamW's state of `parameter`; before its first update, makes the initial state."""
    state: dict[str, Tensor] = optimizer.state[parameter]
    if not state:
        place = parameter.device if optimizer.defaults["fused"] else "cpu"
        state["step"] = torch.zeros((), dtype=torch.float32, device=place)
        state.update({kind: torch.zeros_like(parameter) for kind in STATE})
    return state


class MuonAndAdamW(AdamW):
    """Updates hidden matrices by `torch.optim.Muon`, other parameters by AdamW. Their steps are of
    equal size, so that one learning rate and one weight decay serve both.

    State and checkpoints have the form of AdamW's for all parameters: `exp_avg` holds Muon's
    momentum, and `exp_avg_sq` of a matrix stays zero.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], settings: OptimizerSettings) -> None:
        """Raises InputError if the model has no hidden matrix."""
        super().__init__(groups, **_adamw_options(groups, settings))
        self._matrices = [
            [one for one in group["params"] if one.ndim == 2 and min(one.shape) >= NARROWEST]
            for group in self.param_groups
        ]
        if not any(self._matrices):
            raise InputError(
                f"optimizer.name=muon: needs a matrix of {NARROWEST} or more rows and columns, but "
                f"the model has none; raise model.hidden, or set optimizer.name=adamw"
            )
        self._muon = _Muon(
            [{"params": matrices} for matrices in self._matrices],
            lr=settings.lr,
            weight_decay=settings.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Updates all parameters that have a gradient, and clears the gradients of matrices."""
        groups = zip(self.param_groups, self._muon.param_groups, self._matrices, strict=True)
        for own, of_muon, matrices in groups:
            of_muon["lr"] = own["lr"]
            for matrix in matrices:
                if matrix.grad is not None:
                    state = adam_state(self, matrix)
                    self._muon.state[matrix]["momentum_buffer"] = state["exp_avg"]
                    state["step"] += 1
        self._muon.step()
        for matrix in (one for matrices in self._matrices for one in matrices):
            matrix.grad = None  # AdamW skips parameters without a gradient
        return super().step(closure)
