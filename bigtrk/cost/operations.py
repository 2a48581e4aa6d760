"""Counts what operations compute and move, and what is alive between them, without data."""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import flop_registry

from bigtrk.cost.meta_results import result_of
from bigtrk.models.edges.stores import THERE, Block, Mover, Place, Rows, StreamedStore
from bigtrk.models.edges.work import Work

_aten = torch.ops.aten
# These compute nothing; what a system takes to give memory is counted by its bytes.
_ALLOCATIONS = (_aten.empty, _aten.new_empty, _aten.empty_like, _aten.empty_strided)


@dataclass
class Counted:
    """The counts of a pass; Footprint says what they are."""

    flops: float = 0.0
    bf16_flops: float = 0.0
    fused: float = 0.0
    products: float = 0.0
    traffic: float = 0.0
    fresh: float = 0.0
    operations: int = 0
    shapes: set[tuple[Any, ...]] = field(default_factory=set)


@dataclass(frozen=True)
class _Away(Place):
    """Rows that are kept off the device."""


class CountingStore(StreamedStore):
    """Counts the bytes of edges that are kept off the device, of those that travel, and of the
    buffers on the device for blocks of them, whose number no sector's size changes.
    """

    def __init__(self, block_bytes: int, counter: "Counter") -> None:
        super().__init__(block_bytes)
        self._counter = counter
        self.bytes = self.moved = self.buffers = 0

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> _Away:
        rows = _Away(n_rows, width, dtype, device)
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
        """Moves nothing, as there are no values."""
        yield lambda *_: THERE

    def blocks(self, n_rows: int, read: Sequence[Rows], made: Sequence[Rows]) -> Iterator[Block]:
        """Yields the blocks, and counts what would be moved."""
        self.moved += sum(n_rows * rows.row_bytes for rows in (*read, *made))
        return super().blocks(n_rows, read, made)


class Counter(TorchDispatchMode):
    """Counts every operation below autograd: those of the backward pass and of recomputation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Says that torch need not keep its compiler from it, which takes time each time."""
        return False

    def __init__(self, known: Iterable[Tensor]) -> None:
        """`known` tensors do not count, nor do their views."""
        super().__init__()
        self.alive = 0
        self.live: list[float] = []
        self.work = Counted()
        self._bytes: dict[int, int] = {}
        for tensor in known:
            self.leave_out(tensor)

    def leave_out(self, tensor: Tensor) -> None:
        """Does not count a tensor, nor its views."""
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
        n_bytes = _touched_bytes((*read, *written))
        if packet in flop_registry:
            work.products += n_bytes
            flops = flop_registry[packet](*args, **kwargs, out_val=result)
            work.flops += flops
            if any(tensor.dtype == torch.bfloat16 for tensor in (*read, *written)):
                work.bf16_flops += flops
                if written:  # edges/native.py returns nothing, and has no shapes compiled
                    work.shapes.add((packet, *map(_layout, read), *map(_layout, written)))
        else:
            work.traffic += n_bytes
        return result

    def launched(self, work: Work) -> None:
        """Counts a launch over edges."""
        self.work.operations += 1
        self.work.flops += work.flops
        self.work.bf16_flops += work.flops if work.bf16 else 0.0
        self.work.fused += 0.0 if work.bf16 else work.flops
        self.work.traffic += work.moved

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._bytes:
            self._bytes[key] = storage.nbytes()
            self.alive += storage.nbytes()
            self.work.fresh += storage.nbytes()
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.alive -= self._bytes.pop(key)


def _touched_bytes(operands: Sequence[Tensor]) -> int:
    """Counts the bytes of an operation's operands. Of those whose rows it finds by index it touches
    as many rows as there are indices: a chunk of edges not all nodes.
    """
    indices = [len(t) for t in operands if t.dim() == 1 and t.dtype == torch.int64]
    most = max(indices, default=None)
    return sum(
        t.nbytes if most is None or t.dim() < 2 else t.nbytes // max(len(t), 1) * min(len(t), most)
        for t in operands
    )


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    """Tells products apart as oneDNN does, which compiles one for each."""
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def tensors(tree: Any) -> list[Tensor]:
    """Lists the tensors of nested arguments."""
    # torch's tree_leaves took a third of a count, by its profile.
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        return []
    return [found for leaf in tree for found in tensors(leaf)]
