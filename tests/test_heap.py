"""Freed arrays are used again without the system, unless the user has set that otherwise."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: huge pages fault in at once
import numpy as np
from bigtrk.process.heap import keep_freed_memory
keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**23)  # 64 MiB
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize("own", [{}, {"MALLOC_MMAP_THRESHOLD_": "1048576"}], ids=str)
def test_freed_arrays_are_kept(own: dict[str, str]) -> None:
    environment = {"PATH": "/usr/bin", **own}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    pages = 2**26 // 4096
    assert first > 0.9 * pages
    assert (second < 0.1 * pages) is not bool(own)
