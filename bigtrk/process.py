"""Settings of a process that computes: freed memory, other threads, torch's warnings."""

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
    """Returns freed tensors of 4 MiB or more to the system instead of glibc's heap."""
    _set(MALLOC_MMAP_THRESHOLD_=2**22, MALLOC_TRIM_THRESHOLD_=2**28)


def share_heap() -> None:
    """Gives all threads one heap for small tensors: otherwise each would keep what it freed. Not
    for ShaDow, whose threads sample at the same time and would wait for each other.
    """
    _set(MALLOC_ARENA_MAX=1)


def keep_freed_memory() -> None:
    """Keeps freed arrays of up to a GiB: partitioning takes a quarter less time."""
    _set(MALLOC_MMAP_THRESHOLD_=2**30, MALLOC_TRIM_THRESHOLD_=2**31 - 1)


def _set(**values: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, value in values.items():
        if mallopt is not None and variable not in os.environ:
            mallopt(_PARAMETERS[variable], value)


def silence_sparse_warnings() -> None:
    """Silences what torch says of a process's first sparse matrix."""
    checks = torch.sparse.check_sparse_tensor_invariants
    with warnings.catch_warnings(action="ignore"):
        torch.empty((1, 1), layout=torch.sparse_csr, device="meta")
        if not checks.is_enabled():
            checks.disable()


@contextmanager
def cores_for_this_thread() -> Iterator[None]:
    """Limits threads that start while the block runs to one core each; this one keeps its cores.
    With more threads of OpenMP than cores, steps took up to 1.8 times as long.
    """
    cores = torch.get_num_threads()
    torch.set_num_threads(cores)
    torch.get_num_threads()  # now, since a thread takes the number of the process when first asked
    with ThreadPoolExecutor(1) as other:
        other.submit(torch.set_num_threads, 1).result()
    try:
        yield
    finally:
        torch.set_num_threads(cores)


def uploaded(tensor: Tensor, device: torch.device, sent: torch.dtype | None = None) -> Tensor:
    """Copies a tensor to `device`. To an accelerator it goes from pinned memory, without waiting,
    and travels as `sent`, a type of fewer bytes that can hold the values.
    """
    if device.type == "cpu" or tensor.device.type == device.type:
        return tensor.to(device)
    copy = pinned(tensor, sent or tensor.dtype)
    return copy.to(device, non_blocking=True).to(tensor.dtype)


def pinned(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Copies a tensor to pinned memory, which torch uses again once it was read."""
    return torch.empty(tensor.shape, dtype=dtype, pin_memory=True).copy_(tensor)


class Prefetcher:
    """One thread (so one heap) that prepares the next item while the current one is used."""

    def __init__(self) -> None:
        self._name = f"prefetcher {id(self)}"
        self._thread = ThreadPoolExecutor(1, self._name)

    def each(self, made_by: Iterable[Callable[[], T]]) -> Iterator[Callable[[], T]]:
        """Yields, for each call, a function that waits for it, and returns or raises what the call
        did. Use it once, before asking for the next. At the end it waits for unfinished calls.
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
            # The thread itself ends what was left unfinished, in a cycle, if it collects garbage.
            if not threading.current_thread().name.startswith(self._name):
                wait(begun)
