"""Removes what a network keeps of a forward pass on its modules.

SuperGATConv keeps its attention so, for a loss that nothing computes here. Tensors with gradients
hold the memory of their pass until the next one, and a module that has one cannot be copied.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bigtrk.models.layer_names import told
from bigtrk.models.protocol import ContractError


@contextmanager
def forgotten(net: nn.Module) -> Iterator[None]:
    """Gives attributes of the modules of `net` that name a tensor computed within their former
    values, or removes them.

    Raises:
        ContractError: a list or the like, or a buffer, has got one, or a constructor computed one.
    """
    before = [(path, module, dict(vars(module))) for path, module in net.named_modules()]
    yield
    for path, module, known in before:
        for name in [name for name, value in vars(module).items() if _computed(value)]:
            if name in known and _computed(known[name]):
                raise _kept(told(path, module), module, name)
            del vars(module)[name]
            if name in known:
                vars(module)[name] = known[name]


def _computed(value: Any) -> bool:
    leaves = tree_leaves(value)
    return any(isinstance(leaf, Tensor) and leaf.grad_fn is not None for leaf in leaves)


def _kept(layer: str, module: nn.Module, name: str) -> ContractError:
    if name == "_buffers":
        name = next(name for name, value in module._buffers.items() if _computed(value))
    return ContractError(
        f"layer {layer}: keeps a tensor that has gradients in its attribute {name}; compute it "
        f"in forward, into a local variable"
    )
