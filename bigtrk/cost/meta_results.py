"""Finds what operations return where tensors have no values, on torch's meta device.

torch has rules of its own for it. They take up to a millisecond for some operations, which are most
of a pass, and many import torch's compiler first, for 2.5 s. Those here make counting a pass twice
as fast, and never import it where a pass on a CPU is counted (torch 2.13).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

_aten = torch.ops.aten


def result_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operation, or finds out what it would return."""
    out = kwargs.get("out")
    if isinstance(out, Tensor) and out.is_meta:
        return out
    rule = _RULES.get(function)
    result = NotImplemented
    if rule is not None and _first(args).is_meta:
        asked = {name: kwargs[name] for name in ("dtype", "device") if name in kwargs}
        result = rule(*args, **asked)
    return function(*args, **kwargs) if result is NotImplemented else result


def _first(args: Sequence[Any]) -> Tensor:
    found: Tensor = args[0] if isinstance(args[0], Tensor) else args[0][0]
    return found


def _elementwise(x: Tensor, *others: Any) -> Any:
    tensors = [other for other in others if isinstance(other, Tensor)]
    alike = all(other.dtype == x.dtype for other in tensors)
    if not (alike and _by_rows(x) and (x.is_floating_point() or _keeps_its_type(x, others))):
        return NotImplemented
    if all(other.shape == x.shape for other in tensors):
        return x.new_empty(x.shape)
    return x.new_empty(np.broadcast_shapes(x.shape, *(other.shape for other in tensors)))


def _itself(x: Tensor, *_: Any) -> Tensor:
    return x


def _like(x: Tensor, **asked: Any) -> Any:
    return x.new_empty(x.shape, **asked) if _by_rows(x) else NotImplemented


def _keeps_its_type(x: Tensor, others: Sequence[Any]) -> bool:
    # Functions of one integer may be of another type, and so may sums of truth values.
    given = bool(others) and not any(isinstance(other, float) for other in others)
    return given and x.dtype != torch.bool


def _by_rows(x: Tensor) -> bool:
    # What is computed from a transposed tensor is transposed, too.
    return list(x.stride()) == sorted(x.stride(), reverse=True)


def _cat(parts: Sequence[Tensor], dim: int = 0) -> Any:
    first = parts[0]
    if any(part.dim() != first.dim() or part.dtype != first.dtype for part in parts):
        return NotImplemented
    shape = list(first.shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    return first.new_empty(shape)


def _cumsum(x: Tensor, _: int, *, dtype: torch.dtype | None = None) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype or (x.dtype if x.is_floating_point() else torch.int64))


def _binary_cross_entropy(x: Tensor, *others: Any) -> Tensor:
    reduction = others[-1]
    return x.new_empty(() if reduction else x.shape)


def _layer_norm(x: Tensor, shape: Sequence[int], *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    # Means and deviations, in float32 at least.
    rows = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
    mean = x.new_empty(rows, dtype=torch.promote_types(x.dtype, torch.float32))
    return x.new_empty(x.shape), mean, mean.new_empty(rows)


def _layer_norm_backward(
    _gradient: Tensor, x: Tensor, shape: Sequence[int], *others: Any
) -> tuple[Tensor | None, ...]:
    weights, asked = others[2:4], others[4]
    made = [None if weight is None else x.new_empty(shape) for weight in weights]
    found = zip(asked, (x.new_empty(x.shape), *made), strict=True)
    return tuple(one if needed else None for needed, one in found)


_ELEMENTWISE = (
    _aten.add.Tensor,
    _aten.clone.default,
    _aten.mul.Tensor,
    _aten.sigmoid.default,
    _aten.sigmoid_backward.default,
    _aten.sub.Tensor,
    _aten.tanh.default,
    _aten.tanh_backward.default,
)
_RULES: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    _aten.add_.Tensor: _itself,
    _aten.addmm.default: lambda _, a, b: a.new_empty(a.shape[0], b.shape[1]),
    _aten.binary_cross_entropy_with_logits.default: _binary_cross_entropy,
    _aten.cat.default: _cat,
    _aten.cumsum.default: _cumsum,
    _aten.empty_like.default: _like,
    _aten.index_add_.default: _itself,
    _aten.mm.default: lambda a, b: a.new_empty(a.shape[0], b.shape[1]),
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
    _aten.ones_like.default: _like,
    _aten.zeros_like.default: _like,
}
