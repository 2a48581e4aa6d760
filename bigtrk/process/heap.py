"""Sets what glibc keeps of freed memory (mallopt(3)), for programs with different needs."""

import ctypes
import os

# Parameters of mallopt(3), by the variable of the environment that sets the same.
TRIM, MMAP, ARENAS = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX"
_PARAMETERS = {TRIM: -1, MMAP: -3, ARENAS: -8}


def tune_heap(variable: str, value: int) -> None:
    """Sets what a `variable` of glibc's would set, unless it is in the user's environment: glibc
    alone knows what that says.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and variable not in os.environ:
        mallopt(_PARAMETERS[variable], value)


def give_back_freed_memory() -> None:
    """Gives the system what the heap keeps, as far as it is whole pages."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Has freed arrays of up to a GiB kept for the next ones.

    By default they go back to the system, which clears each page again: to partition 44 M edges
    took 27 to 33 s so, 12 to 16 of them in the kernel, and 19 to 26 s with this, 4 to 11 in the
    kernel, in 6.2 GiB instead of 5.8.
    """
    tune_heap(MMAP, 2**30)
    tune_heap(TRIM, 2**31 - 1)
