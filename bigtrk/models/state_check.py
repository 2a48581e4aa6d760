"""Finds out whether a model's weights are such that every engine can train and every run store."""

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from bigtrk.models.layer_names import told
from bigtrk.models.protocol import ContractError

_PARTIAL = (
    "has a gradient hook, which would see a sector's share of a gradient and not the sum over all "
    "sectors; remove it (optimizer.gradient_clipping clips the sum)"
)


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
