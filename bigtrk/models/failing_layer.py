"""The layer of a model in which an error was raised, from the error's own traceback."""

from torch import nn


def failing_layer(model: nn.Module, error: BaseException) -> str:
    """Names the innermost layer of `model` that was at work when `error` was raised, as
    `convs.0 (GCNConv)`; the model's class where none of its layers was.
    """
    names = {id(module): name for name, module in model.named_modules()}
    found, trace = "", error.__traceback__
    while trace is not None:
        found = names.get(id(trace.tb_frame.f_locals.get("self")), "") or found
        trace = trace.tb_next
    return told_layer(model, found)


def told_layer(model: nn.Module, name: str) -> str:
    """Tells a layer of `model` by its name and class; by its class alone the model itself, ""."""
    layer = type(model.get_submodule(name)).__name__
    return f"{name} ({layer})" if name else layer
