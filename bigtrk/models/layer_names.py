"""The names of a model's layers in messages."""

from traceback import walk_tb

from torch import nn


def told(path: str, module: nn.Module) -> str:
    """Names a module of a model by its path there and its class, `convs.0 (GATConv)`; the model
    itself, whose path is "", by its class alone.
    """
    kind = type(module).__name__
    return f"{path} ({kind})" if path else kind


def failing_layer(error: BaseException) -> str:
    """Names the innermost layer that was at work when `error` was raised in a model; nothing where
    it was the model itself.
    """
    at_work = [frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__)]
    modules = [module for module in at_work if isinstance(module, nn.Module)]
    if not modules:
        return ""
    paths = {id(module): path for path, module in modules[0].named_modules()}
    innermost = [module for module in modules if id(module) in paths][-1]
    path = paths[id(innermost)]
    return told(path, innermost) if path else ""
