"""A thread makes things ahead of their use, one at a time, and outlives an iteration; OpenMP's
threads do not spin for long; freed arrays are used again.
"""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from bigtrk.process import Prefetcher

WAIT = 300


def test_things_come_in_order_from_one_thread_whatever_the_iteration() -> None:
    """Memory grew with new threads of every epoch."""
    prefetcher = Prefetcher()

    def made(number: int) -> tuple[int, threading.Thread]:
        return number, threading.current_thread()

    found = [
        [take() for take in prefetcher.each(partial(made, i) for i in range(n))] for n in (3, 0, 4)
    ]
    assert [[number for number, _ in one] for one in found] == [[0, 1, 2], [], [0, 1, 2, 3]]
    [thread] = {thread for one in found for _, thread in one}
    assert thread is not threading.main_thread()


def test_the_next_one_alone_is_made_while_one_is_used() -> None:
    started = [threading.Event() for _ in range(4)]
    asked: list[int] = []

    def makes() -> Iterator[Callable[[], None]]:
        for i, event in enumerate(started):
            asked.append(i)
            yield event.set

    for i, take in enumerate(Prefetcher().each(makes())):
        take()
        next_one = min(i + 1, len(started) - 1)
        assert started[next_one].wait(WAIT)
        assert asked == [*range(next_one + 1)]


def test_an_end_waits_for_what_is_being_made() -> None:
    begun, goes_on, ended = (threading.Event() for _ in range(3))

    def make() -> None:
        begun.set()
        goes_on.wait(WAIT)
        ended.set()

    takes = Prefetcher().each([lambda: None, make])
    next(takes)()
    assert begun.wait(WAIT)
    timer = threading.Timer(0.2, goes_on.set)
    timer.start()
    takes.close()  # type: ignore[attr-defined]
    assert ended.is_set()
    timer.join()


def test_the_thread_itself_may_end_what_was_left_in_a_cycle() -> None:
    """Any thread may collect garbage, such as the cycle that an error's traceback makes."""
    prefetcher, left = Prefetcher(), threading.Event()

    def make() -> None:
        assert left.wait(WAIT)
        gc.collect()

    def leave() -> None:
        cycle: list[object] = []
        takes = prefetcher.each([lambda: None, make, lambda: None])
        cycle.extend([cycle, takes])
        next(takes)()

    gc.disable()
    try:
        leave()
        left.set()
        assert [take() for take in prefetcher.each([lambda: "goes on"])] == ["goes on"]
    finally:
        gc.enable()


@pytest.mark.parametrize(("chosen", "spins"), [({}, "1000"), ({"OMP_WAIT_POLICY": "passive"}, "0")])
def test_openmp_spins_briefly_unless_the_user_says_otherwise(
    chosen: dict[str, str], spins: str
) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    loaded = subprocess.run(
        [sys.executable, "-c", "import bigtrk.process"],
        env={**inherited, **chosen, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"GOMP_SPINCOUNT = '{spins}'" in loaded.stderr  # what libgomp read


REUSE = """
import ctypes, resource
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: huge pages fault in at once
import numpy as np
from bigtrk.process import keep_freed_memory
keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**23)  # 64 MiB
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_arrays_are_kept() -> None:
    found = subprocess.check_output([sys.executable, "-c", REUSE], env={"PATH": "/usr/bin"})
    first, second = map(int, found.split())
    pages = 2**26 // 4096
    assert first > 0.9 * pages
    assert second < 0.1 * pages
