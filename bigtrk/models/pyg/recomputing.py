"""Finds message-passing layers that run in a backward pass, where no exchange follows them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch_geometric.nn import MessagePassing

from bigtrk.models.layer_names import told
from bigtrk.models.protocol import ContractError


@contextmanager
def refusing_recomputation(net: nn.Module) -> Iterator[None]:
    """Refuses, during a backward pass, that a layer of `net` runs again.

    Raises:
        ContractError: one does.
    """
    handles = [
        layer.register_forward_pre_hook(partial(_refuse, told(path, layer)))
        for path, layer in net.named_modules()
        if isinstance(layer, MessagePassing)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _refuse(name: str, *_: Any) -> None:
    raise ContractError(
        f"layer {name}: runs again in the backward pass, without its exchange; use no "
        f"torch.utils.checkpoint around message-passing layers, but around what lies between them"
    )
