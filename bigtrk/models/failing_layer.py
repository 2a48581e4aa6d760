"""The layer of a model in which an error was raised, from the error's own traceback."""

from traceback import walk_tb

from torch import nn


def failing_layer(error: BaseException) -> str:
    """Names the innermost layer that was at work when `error` was raised in a model, as
    `convs.0 (GCNConv)`; nothing where it was the model itself.
    """
    at_work = [frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__)]
    modules = [module for module in at_work if isinstance(module, nn.Module)]
    if not modules:
        return ""
    names = {id(module): name for name, module in modules[0].named_modules()}
    known = [module for module in modules if id(module) in names]
    name = names[id(known[-1])]
    return told_layer(modules[0], name) if name else ""


def told_layer(model: nn.Module, name: str) -> str:
    """Tells a layer of `model` by its name and class; the model itself, "", by its class alone."""
    layer = type(model.get_submodule(name)).__name__
    return f"{name} ({layer})" if name else layer
