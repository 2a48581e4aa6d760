"""Holds a model to its contract (models/protocol.py): its state, and passes on small sectors."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from bigtrk.errors import reason
from bigtrk.graphs.sector import Sector
from bigtrk.models.options import Kind
from bigtrk.models.protocol import ContractError, LayeredModel, failing_layer, told
from bigtrk.proof import sectors
from bigtrk.proof.difference import users_line
from bigtrk.proof.sectors import SectorError
from bigtrk.user_code import no_exit

_SAME = 1e-4  # of several sectors and each alone, in float32, relative and absolute
_PARTIAL = (
    "has a gradient hook, which would see a sector's share of a gradient and not the sum over all "
    "sectors; remove it (optimizer.gradient_clipping clips the sum)"
)


def check_contract(model: nn.Module, kind: Kind, *sizes: int) -> list[int]:
    """Runs `model` on three sectors of a graph, of which one is empty, as ranks would."""
    check_state(model)
    weight = next(model.parameters())
    parts = [_like(weight, part) for part in sectors.draw("empty sector", 3, *sizes)[1]]
    try:
        with own_random_numbers(weight), torch.enable_grad():
            made, widths = sectors.results(model, parts, kind, alone=True)
            _check_gradients(model, parts, made)
            if isinstance(model, LayeredModel):
                _check_several(model, parts, kind)
    except SectorError as error:
        raise ContractError(failure(model, error)) from error
    return widths


def _check_gradients(model: nn.Module, parts: Sequence[Sector], made: Sequence[Tensor]) -> None:
    """Checks results, and what each sector's gives every parameter."""
    named = dict(model.named_parameters())
    for part, rows in zip(parts, made, strict=True):
        which = sectors.told_sector(part)
        if not rows.isfinite().all():
            raise SectorError(
                f"gives a result that is not finite for {which}; look for divisions by a number "
                f"that may be zero, as of a node's edges"
            )
        for name, gradient in sectors.backward(named, rows, torch.ones_like(rows)).items():
            if gradient is None:
                raise SectorError(
                    f"gives its parameter {name} no gradient for {which}, so engines would wait "
                    f"for it; use it in every pass, or leave it out"
                )
            if part.n_nodes == 0 and (gradient != 0).any():  # NaN is not 0 either
                raise SectorError(
                    f"gives its parameter {name} a gradient that is not zero for an empty sector; "
                    f"take no means over its rows, which are none"
                )
            if not gradient.isfinite().all():
                raise SectorError(
                    f"gives its parameter {name} a gradient that is not finite for {which}; look "
                    f"for divisions by a number that may be zero, as of a node's edges"
                )


@torch.no_grad()
def _check_several(model: LayeredModel[Any], parts: Sequence[Sector], kind: Kind) -> None:
    """Checks that `model` makes of several sectors of a rank what it makes of each."""
    alone, _ = sectors.results(model, parts, kind)
    inputs = [sectors.inputs_of(part) for part in parts]
    try:
        with no_exit():
            made = model(inputs, lambda owned: sectors.exchanged(owned, parts))
            pairs = zip(made, alone, strict=True)
            same = all(torch.allclose(*pair, rtol=_SAME, atol=_SAME) for pair in pairs)
    except Exception as error:
        raise SectorError("fails for several sectors at once") from error
    if not same:
        raise SectorError(
            "gives other results for a sector among several of a rank than for it alone; compute "
            "each from its own rows, without random numbers"
        )


def _like(weight: Tensor, part: Sector) -> Sector:
    """Gives a sector whose tensors have the type and the device of `weight`."""
    return replace(
        part,
        node_features=part.node_features.to(weight),
        edge_features=part.edge_features.to(weight),
        edge_index=part.edge_index.to(weight.device),
        send_index=part.send_index.to(weight.device),
    )


def failure(model: nn.Module, error: SectorError) -> str:
    cause = error.__cause__
    if not isinstance(cause, Exception):
        return f"{told('', model)}: {error}"
    frames = [frame for frame, _ in walk_tb(cause.__traceback__)]
    layer = failing_layer(cause) or told("", model)
    said = f"{error} ({type(cause).__name__}: {reason(cause)})"
    return f"{layer}{users_line(reversed(frames))}: {said}"


def own_random_numbers(weight: Tensor) -> AbstractContextManager[None]:
    """Keeps what a model draws within it from changing the numbers that are drawn after it."""
    return torch.random.fork_rng(devices=[weight.device] if weight.is_cuda else [])


def check_state(model: nn.Module) -> None:
    """Checks that all that a model keeps are parameters of its own, float32 and trained, and that
    nothing changes gradients before they are summed over sectors.

    Raises:
        ContractError: it has none; names one that is not so, a buffer that would be stored, or a
            parameter or layer with a gradient hook.
    """
    parameters = dict(model.named_parameters())
    if not parameters:
        raise _unfit(model, "has no parameters to train; make its layers in __init__")
    for name, parameter in parameters.items():
        wrong = _wrong(parameter)
        if wrong:
            raise _unfit(model, f"its parameter {name} {wrong}")
    _check_layers(model)
    # A parameter of two names is in the state by both, and among the parameters by one.
    for name in model.state_dict().keys() - parameters.keys():
        if name in dict(model.named_parameters(remove_duplicate=False)):
            raise _unfit(model, f"{name} is another of its parameters, too; give it its own")
        raise _unfit(
            model,
            f"keeps {name}, which is no parameter, so checkpoints would lack it; register it with "
            f"persistent=False and make it in __init__",
        )


def _check_layers(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise _unfit(model, f"its layer {told(path, module)} {_PARTIAL}")


def _wrong(parameter: Tensor) -> str | None:
    """Says what is wrong with a parameter."""
    if isinstance(parameter, UninitializedParameter):
        return "has no size yet; give the layer its number of inputs"
    if parameter.dtype != torch.float32:
        return f"is {parameter.dtype}; keep weights in float32, and convert in forward"
    if parameter.dim() == 0:
        return "has no dimension, so FSDP could not share it; make it of shape [1]"
    if not parameter.requires_grad:
        return (
            "is not trained, which not all engines can do; make it a buffer (register_buffer with "
            "persistent=False)"
        )
    if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
        return _PARTIAL
    return None


def _unfit(model: nn.Module, how: str) -> ContractError:
    return ContractError(f"model {type(model).__name__}: {how} (see bigtrk/models/protocol.py)")
