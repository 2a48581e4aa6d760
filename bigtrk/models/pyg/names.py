"""The names of a network's layers in messages."""

from torch import nn


def told(path: str, module: nn.Module) -> str:
    """Names a module of a network by its path there and its class: `convs.0 (GATConv)`."""
    kind = type(module).__name__
    return f"{path} ({kind})" if path else kind
