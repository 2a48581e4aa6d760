"""Sets what glibc keeps of freed memory (mallopt(3)); the user's environment wins."""

import ctypes
import os

# Parameters of mallopt(3), by the variable of the environment that sets the same.
_PARAMETERS = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_ARENA_MAX": -8}


def give_back_large_blocks() -> None:
    """Has freed tensors of 4 MiB or more go back to the system, and smaller ones stay.

    By default glibc keeps freed blocks below 32 MiB in pieces that later blocks do not fill: a
    process then takes more memory than its tensors, which is what is counted (docs/memory.md).
    """
    # With a limit of its own glibc would give back all but 128 KiB that are freed at its end.
    _set(MALLOC_MMAP_THRESHOLD_=2**22, MALLOC_TRIM_THRESHOLD_=2**28)


def share_heap() -> None:
    """Has all threads take small tensors from one heap: of its own each would keep what it freed.
    Threads that have a heap keep it. ShaDow's, which sample at once, would wait for each other.
    """
    _set(MALLOC_ARENA_MAX=1)


def keep_freed_memory() -> None:
    """Has freed arrays of up to a GiB kept: to partition 44 M edges takes 19 to 26 s so, and 27 to
    33 s where the system clears their pages again; 6.2 GiB instead of 5.8.
    """
    _set(MALLOC_MMAP_THRESHOLD_=2**30, MALLOC_TRIM_THRESHOLD_=2**31 - 1)


def _set(**values: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for variable, value in values.items():
        if mallopt is not None and variable not in os.environ:
            mallopt(_PARAMETERS[variable], value)
