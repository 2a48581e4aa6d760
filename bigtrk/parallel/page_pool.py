"""Large tensors on a CPU whose freed pages serve the next ones (page_pool.cpp)."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from bigtrk.console import warn_once
from bigtrk.native_code import build
from bigtrk.parallel.host import HUGE_PAGES, LARGE
from bigtrk.process.heap import MMAP

_TORCH = Path(torch.__path__[0])
# The version makes another torch's library another one. Some compilers link libraries only for what
# is before them.
_FLAGS = (
    "-std=c++20", f'-DTORCH="{torch.__version__}"', f"-I{_TORCH / 'include'}",
    f"-L{_TORCH / 'lib'}", "-Wl,--no-as-needed", "-lc10", "-lstdc++",
)  # fmt: skip
CODE = "page_pool", Path(__file__).with_name("page_pool.cpp"), (), _FLAGS

_used: list[ctypes.CDLL] = []  # inside the block of `reused_pages`


@cache
def _library() -> ctypes.CDLL | None:
    found = build(*CODE)
    if found.library is None:
        warn_once("page pool", f"tensors get new pages each time: {found.problem}")
    return found.library


@contextmanager
def reused_pages(device: torch.device) -> Iterator[None]:
    """Has tensors of `LARGE` bytes or more take pages that others freed, inside the block on a CPU.

    A process holds as many pages as its tensors once had together, and the system clears each once
    (docs/memory.md has the figures). Call give_back_pages() before anything else takes much memory.
    MALLOC_MMAP_THRESHOLD_ in the user's environment has tensors come from glibc as it says.
    """
    wanted = device.type == "cpu" and MMAP not in os.environ and not _used
    pool = _library() if wanted else None
    if pool is None:
        yield
        return
    huge_pages = os.environ.get(HUGE_PAGES) == "1"  # as torch reads it
    pool.use_page_pool(ctypes.c_size_t(LARGE), ctypes.c_int(huge_pages))
    _used.append(pool)
    try:
        yield
    finally:
        _used.remove(pool)
        pool.leave_page_pool()


def give_back_pages() -> None:
    """Gives free pages back to the system, for what is not a tensor."""
    for pool in _used:
        pool.empty_page_pool()
