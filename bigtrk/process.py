"""Settings of a computing process: freed memory, threads, torch's warnings."""

import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
# Parameters of mallopt(3), by the variable of the environment that sets the same.
_PARAMETERS = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_ARENA_MAX": -8}


def give_back_large_blocks() -> None:
    """Makes freed tensors of 4 MiB or more return to the system, not to glibc's heap."""
    _set(MALLOC_MMAP_THRESHOLD_=2**22, MALLOC_TRIM_THRESHOLD_=2**28)


def share_heap() -> None:
    """Makes all threads use one heap for small tensors, since each would keep what it freed. Not
    for ShaDow, whose threads sample at the same time and would wait for each other.
    """
    _set(MALLOC_ARENA_MAX=1)


def keep_freed_memory() -> None:
    """Makes freed arrays of up to 1 GiB stay in the heap; partitioning takes 25 % less time."""
    _set(MALLOC_MMAP_THRESHOLD_=2**30, MALLOC_TRIM_THRESHOLD_=2**31 - 1)


def _set(**values: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, value in values.items():
        if mallopt is not None and variable not in os.environ:
            mallopt(_PARAMETERS[variable], value)


def silence_sparse_warnings() -> None:
    """Silences torch's warning about a process's first sparse matrix."""
    checks = torch.sparse.check_sparse_tensor_invariants
    with warnings.catch_warnings(action="ignore"):
        torch.empty((1, 1), layout=torch.sparse_csr, device="meta")
        if not checks.is_enabled():
            checks.disable()


@contextmanager
def cores_for_this_thread() -> Iterator[None]:
    """Limits threads started in the block to one core each; this thread keeps its cores. With more
    OpenMP threads than cores, steps took up to 1.8 times as long.
    """
    cores = torch.get_num_threads()
    torch.set_num_threads(cores)
    torch.get_num_threads()  # a thread takes the process's number at its first call
    with ThreadPoolExecutor(1) as other:
        other.submit(torch.set_num_threads, 1).result()
    try:
        yield
    finally:
        torch.set_num_threads(cores)


def uploaded(tensor: Tensor, device: torch.device, sent: torch.dtype | None = None) -> Tensor:
    """Returns a copy of a tensor on `device`. To an accelerator it goes from pinned memory, without
    waiting, and travels as the smaller type `sent`, which must hold the values.
    """
    if device.type == "cpu" or tensor.device.type == device.type:
        return tensor.to(device)
    copy = pinned(tensor, sent or tensor.dtype)
    return copy.to(device, non_blocking=True).to(tensor.dtype)


def pinned(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a copy of a tensor in pinned memory, which torch reuses once it was read."""
    return torch.empty(tensor.shape, dtype=dtype, pin_memory=True).copy_(tensor)


class Prefetcher:
    """A thread (one, so one heap) that prepares the next item while the current one is used."""

    def __init__(self) -> None:
        self._name = f"prefetcher {id(self)}"
        self._thread = ThreadPoolExecutor(1, self._name)

    def each(self, made_by: Iterable[Callable[[], T]]) -> Iterator[Callable[[], T]]:
        """Yields a function per call in `made_by`; it waits for the call, then returns its result
        or raises. Use it before asking for the next. Waits for unfinished calls at the end.
        """
        calls: list[Future[T]] = []

        def take() -> T:
            return calls.pop(0).result()

        try:
            for make in made_by:
                calls.append(self._thread.submit(make))
                if len(calls) > 1:
                    yield take
            if calls:
                yield take
        finally:
            begun = [call for call in calls if not call.cancel()]
            # This may be the thread itself, collecting an unfinished generator: do not wait for it.
            if not threading.current_thread().name.startswith(self._name):
                wait(begun)
