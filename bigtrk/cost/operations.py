"""Counts the operations, bytes moved and bytes alive of a pass over tensors without data."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import flop_registry

from bigtrk.models.edges.states import Block, Rows
from bigtrk.models.edges.stores import Mover, Place, StreamedStore, there
from bigtrk.models.edges.work import Work

_aten = torch.ops.aten
# These compute nothing; the time to get memory is counted by its bytes.
_ALLOCATIONS = (_aten.empty, _aten.new_empty, _aten.empty_like, _aten.empty_strided)


@dataclass
class Counted:
    """The counts of a pass; `Footprint` explains each."""

    flops: float = 0.0
    bf16_flops: float = 0.0
    traffic: float = 0.0
    operations: int = 0
    live: Sequence[float] = ()
    saved: float = 0.0
    away: float = 0.0
    moved: float = 0.0
    exchanged: tuple[int, ...] = ()


class CountingStore(StreamedStore):
    """A store that only counts the bytes of edges off the device (`bytes`), of blocks that travel
    (`moved`), and of `buffers` on the device, whose number is the same for all sizes.
    """

    def __init__(self, block_bytes: int, counter: "Counter") -> None:
        super().__init__(block_bytes)
        self._counter = counter
        self.bytes = self.moved = self.buffers = 0

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Place:
        rows = Place(n_rows, width, dtype, device)
        self.bytes += n_rows * rows.row_bytes
        return rows

    def buffer(self, place: Place, n_rows: int) -> Tensor:
        with _disable_current_modes():
            made = torch.empty(n_rows, place.width, dtype=place.dtype, device="meta")
        self._counter.leave_out(made)
        self.buffers += made.nbytes
        return made

    @contextmanager
    def mover(self) -> Iterator[Mover]:
        """Yields a function that moves nothing, since tensors have no data."""
        yield lambda *_: there

    def blocks(self, n_rows: int, read: Sequence[Rows], made: Sequence[Rows]) -> Iterator[Block]:
        """Yields the blocks, and counts the bytes that would travel."""
        self.moved += sum(n_rows * rows.row_bytes for rows in (*read, *made))
        return super().blocks(n_rows, read, made)


class Counter(TorchDispatchMode):
    """Counts every operation below autograd, also in the backward pass and in recomputation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Makes torch skip a test whether to keep its compiler away, which takes time."""
        return False

    def __init__(self, known: Iterable[Tensor]) -> None:
        """Does not count the memory of `known` tensors and their views."""
        super().__init__()
        self.alive = 0
        self.live: list[float] = []
        self.work = Counted()
        self._bytes: dict[int, int] = {}
        for tensor in known:
            self.leave_out(tensor)

    def leave_out(self, tensor: Tensor) -> None:
        """Leaves the memory of a tensor and its views out of the count."""
        self._bytes[tensor.untyped_storage()._cdata] = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = result_of(func, args, kwargs)
        # A tensor given as `out` is only written.
        read = tensors((args, {name: kwargs[name] for name in kwargs if name != "out"}))
        written = tensors(result)
        for tensor in written:
            self._follow(tensor.untyped_storage())
        self.live.append(self.alive)
        packet, work = func._overloadpacket, self.work
        if func.is_view or packet in _ALLOCATIONS:
            return result
        work.operations += 1
        work.traffic += _touched_bytes((*read, *written))
        if packet in flop_registry:
            flops = flop_registry[packet](*args, **kwargs, out_val=result)
            work.flops += flops
            if any(tensor.dtype == torch.bfloat16 for tensor in (*read, *written)):
                work.bf16_flops += flops
        return result

    def launched(self, work: Work) -> None:
        """Adds the work of a launch over edges to the counts."""
        self.work.operations += 1
        self.work.flops += work.flops
        self.work.bf16_flops += work.flops if work.bf16 else 0.0
        self.work.traffic += work.moved

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._bytes:
            self._bytes[key] = storage.nbytes()
            self.alive += storage.nbytes()
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.alive -= self._bytes.pop(key)


def _touched_bytes(operands: Sequence[Tensor]) -> int:
    """Counts the bytes that an operation reads and writes. If it finds rows by index, each operand
    counts at most as many rows as there are indices: a chunk of edges does not read all nodes.
    """
    indices = [len(t) for t in operands if t.dim() == 1 and t.dtype == torch.int64]
    most = max(indices, default=None)
    return sum(
        t.nbytes if most is None or t.dim() < 2 else t.nbytes // max(len(t), 1) * min(len(t), most)
        for t in operands
    )


def tensors(tree: Any) -> list[Tensor]:
    """Lists the tensors in nested arguments."""
    # torch's tree_leaves took a third of a count, by its profile.
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return []
    return [found for leaf in tree for found in tensors(leaf)]


# Rules for the results of operations on torch's meta device, where tensors have no values. Torch's
# own rules for these operations import its compiler, or sympy: up to 1.5 s and 68 MiB (torch 2.13).


def result_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operation; on meta tensors some results are made by the faster rules below."""
    out = kwargs.get("out")
    if isinstance(out, Tensor) and out.is_meta:
        return out
    rule, result = _RULES.get(function), NotImplemented
    if rule is not None and kwargs.get("device") is None:
        first = args[0] if isinstance(args[0], Tensor) else args[0][0]
        asked = {"dtype": kwargs["dtype"]} if "dtype" in kwargs else {}
        result = rule(*args, **asked) if first.is_meta else NotImplemented
    return function(*args, **kwargs) if result is NotImplemented else result


def _by_rows(x: Tensor) -> bool:
    """Whether a tensor is laid out by rows. For a transposed one torch returns a transposed one."""
    return list(x.stride()) == sorted(x.stride(), reverse=True)


def _elementwise(x: Tensor, *others: Any) -> Any:
    tensors = [other for other in others if isinstance(other, Tensor)]
    alike = all(other.dtype == x.dtype for other in tensors)
    # Functions of one integer may be of another type, and so may sums of truth values.
    whole = x.dtype != torch.bool and others and not any(isinstance(one, float) for one in others)
    if not (alike and _by_rows(x) and (x.is_floating_point() or whole)):
        return NotImplemented
    return x.new_empty(np.broadcast_shapes(x.shape, *(other.shape for other in tensors)))


def _cat(parts: Sequence[Tensor], dim: int = 0) -> Any:
    first = parts[0]
    if any(part.dim() != first.dim() or part.dtype != first.dtype for part in parts):
        return NotImplemented
    shape = list(first.shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    return first.new_empty(shape)


def _like(x: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    return x.new_empty(x.shape, dtype=dtype) if _by_rows(x) else NotImplemented


def _cumsum(x: Tensor, _: int, *, dtype: torch.dtype | None = None) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype or (x.dtype if x.is_floating_point() else torch.int64))


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
    _aten.mul.Tensor,
    _aten.sigmoid.default,
    _aten.sigmoid_backward.default,
    _aten.sub.Tensor,
    _aten.tanh.default,
    _aten.tanh_backward.default,
)
_RULES: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    _aten.add_.Tensor: lambda x, _: x,
    _aten.addmm.default: lambda _, a, b: a.new_empty(a.shape[0], b.shape[1]),
    _aten.binary_cross_entropy_with_logits.default: lambda x, *others: x.new_empty(
        () if others[-1] else x.shape
    ),  # the last is the kind of reduction
    _aten.cat.default: _cat,
    _aten.cumsum.default: _cumsum,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
    _aten.empty_like.default: _like,
    _aten.mm.default: lambda a, b: a.new_empty(a.shape[0], b.shape[1]),
    _aten.ones_like.default: _like,
    _aten.zeros_like.default: _like,
}
