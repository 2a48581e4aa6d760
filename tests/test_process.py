"""A thread makes things ahead of their use, one at a time, and outlives an iteration; OpenMP's
threads do not spin for long; freed arrays are used again unless the user says otherwise.
"""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bigtrk.process import Prefetcher
from tests.programs import run_in_one

WAIT = 300


def test_things_come_in_order_from_one_thread_whatever_the_iteration() -> None:
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


TRAINED = """
import contextlib, sys, threading
import bigtrk
from bigtrk.sampling import shadow
from bigtrk.training.data.batch import Loader
threads = set()

def noting(call):
    def noted(*args, **kwargs):
        threads.add(threading.current_thread().name)
        return call(*args, **kwargs)

    return noted

Loader.load = noting(Loader.load)
shadow.shadow_sector = noting(shadow.shadow_sector)
settings = ["data.train=[graphs]", "model.hidden=8", "training.epochs=3", "run.folder=run"]
with contextlib.redirect_stdout(sys.stderr):
    bigtrk.train(bigtrk.configure(*settings, "sampling.method=shadow"))
print(len(threads))
"""


@pytest.mark.slow
def test_all_epochs_of_a_training_read_and_sample_in_the_same_threads(tmp_path: Path) -> None:
    """One of each: in new ones of every epoch memory grew."""
    run_in_one(
        ["bigtrk simulate events --events 3 --particles 60", "bigtrk build events graphs"], tmp_path
    )
    program = [sys.executable, "-c", TRAINED]
    assert subprocess.check_output(program, cwd=tmp_path, text=True) == "2\n"


@pytest.mark.parametrize(
    ("module", "chosen", "spins"),
    [
        ("bigtrk.program", {}, "10000"),
        ("partition.cli", {}, "10000"),
        ("bigtrk.api", {"OMP_WAIT_POLICY": "passive"}, "0"),
    ],
)
def test_openmp_spins_briefly_unless_the_user_says_otherwise(
    module: str, chosen: dict[str, str], spins: str
) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    loaded = subprocess.run(
        [sys.executable, "-c", f"import {module}"],
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


@pytest.mark.parametrize("own", [{}, {"MALLOC_MMAP_THRESHOLD_": "1048576"}], ids=str)
def test_freed_arrays_are_kept(own: dict[str, str]) -> None:
    environment = {"PATH": "/usr/bin", **own}
    command = [sys.executable, "-c", REUSE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    pages = 2**26 // 4096
    assert first > 0.9 * pages
    assert (second < 0.1 * pages) is not bool(own)
