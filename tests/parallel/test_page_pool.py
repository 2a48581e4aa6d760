"""Pages of large tensors serve the next ones: none is cleared twice, and no more are held than are
in use at once.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bigtrk.parallel.host import FROM_SYSTEM
from bigtrk.parallel.page_pool import reused_pages
from tests.programs import run_in_one

START = """
import random, resource, sys, threading
import torch
from bigtrk.parallel.host import configure_process
from bigtrk.parallel.page_pool import give_back_pages, reused_pages
from bigtrk.parallel.ranks import discover
configure_process(discover())
MIB, CPU = 2**20, torch.device("cpu")
"""
USED = """
def held():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) // 1024

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def a_step(draw, most=200):
    '''Tensors of many sizes, at most so many MiB at once, freed in any order.'''
    live = []
    for number in range(100):
        size = int(draw.uniform(4, 24) * MIB)
        while live and size + sum(len(values) for _, values in live) > most * MIB:
            marked, values = live.pop(draw.randrange(len(live)))
            assert values[0] == values[-1] == values[len(values) // 2] == marked
            del values
        live.append((number, torch.full((size,), number, dtype=torch.uint8)))
    for marked, values in live:
        assert values.min() == values.max() == marked
"""


def told(script: str, **environment: str) -> list[int]:
    """Returns the numbers that `script` prints."""
    program = [sys.executable, "-c", START + USED + script]
    done = subprocess.check_output(program, env={**os.environ, **environment}, text=True)
    return [int(number) for number in done.split()]


STEPS = """
draw, before = random.Random(1), held()
with reused_pages(CPU):
    a_step(draw)
    first = faults()
    a_step(draw)
    print(faults() - first, held() - before)
    give_back_pages()
    print(held() - before)
"""


@pytest.mark.parametrize(("huge", "few"), [("1", 200), ("0", 20_000)])
def test_pages_serve_tensors_of_other_sizes(huge: str, few: int) -> None:
    again, most, after = told(STEPS, THP_MEM_ALLOC_ENABLE=huge)
    assert again < few  # of 358,000 pages that a hundred tensors of some 14 MiB have
    assert 180 < most < 215  # MiB: 200 of tensors, and what is not one
    assert after < 25


def test_the_user_s_environment_wins() -> None:
    again, _, _ = told(STEPS, MALLOC_MMAP_THRESHOLD_="1000000", THP_MEM_ALLOC_ENABLE="0")
    assert again > 100_000, "pages go back to the system"


MIXED = """
before = held()
with reused_pages(CPU):
    for size in (4.2, 3.9, 1.1, 4.2):
        live = [torch.ones(int(size * MIB), dtype=torch.uint8) for _ in range(int(200 / size))]
        del live
    print(held() - before)
"""


def test_steps_of_smaller_tensors_add_nothing() -> None:
    [most] = told(MIXED)
    assert 190 < most < 260  # MiB: 200 of tensors, each as whole pieces of 256 KiB


THREADS = """
def steps(seed):
    for _ in range(3):
        a_step(random.Random(seed), most=60)

with reused_pages(CPU):
    threads = [threading.Thread(target=steps, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(held())
"""


def test_threads_share_the_pages() -> None:
    [most] = told(THREADS)
    assert most < 600  # MiB: four times 60, and what torch has


INNER = """
with reused_pages(CPU):
    with reused_pages(CPU):
        a_step(random.Random(1))
    first = faults()
    a_step(random.Random(1))
    print(faults() - first)
"""


def test_a_block_within_another_ends_nothing() -> None:
    [again] = told(INNER)
    assert again < 200


LEFT = """
with reused_pages(CPU):
    kept, freed = torch.ones(8 * MIB), torch.ones(8 * MIB)
    del freed
before = held()
later = torch.ones(8 * MIB)  # it is glibc's
with reused_pages(CPU):
    del later
    again = torch.ones(8 * MIB)
    assert kept.sum() == again.sum() == 8 * MIB
del kept, again
print(before, held())
"""


def test_tensors_outlive_the_pool_and_pass_through_it() -> None:
    before, after = told(LEFT)
    assert 25 < before - after < 40  # MiB: `kept`, and before it what was free


def test_what_does_not_fit_into_memory_is_said_as_by_torch() -> None:
    with (
        reused_pages(torch.device("cpu")),
        pytest.raises(RuntimeError, match="can't allocate memory"),
    ):
        torch.empty(2**46)


REFUSED = """
import ctypes, struct
libc = ctypes.CDLL(None)
# The number of the call; whether it is mremap's of x86-64; an error (EPERM) if so; else the call.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 25), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
filters = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(steps)))
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, filters) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls have other numbers")
def test_where_pages_cannot_be_moved_the_system_gives_others() -> None:
    again, most, after = told(REFUSED + STEPS, THP_MEM_ALLOC_ENABLE="0")
    assert again > 100_000
    assert most < 215
    assert after < 25


MANY = """
def touched(size, number):
    tensors = [torch.empty(size, dtype=torch.uint8) for _ in range(number)]
    for values in tensors:
        values[:: 2 * MIB] = 3
    return tensors

with reused_pages(CPU):
    long = touched(24 * MIB, 6000)
    del long
    short = touched(4 * MIB, 36_000)
    again = touched(6 * MIB, 6000)
    print(sum(1 for _ in open("/proc/self/maps")))
    print(sum(int(values[:: 2 * MIB].sum()) for values in (*short, *again)))
"""


def test_pieces_are_given_back_before_linux_refuses_more() -> None:
    """65,530 mappings are what it allows a process, and each piece that was moved is one."""
    mappings, total = told(MANY, THP_MEM_ALLOC_ENABLE="0")
    assert 30_000 < mappings < 60_000
    assert total == 3 * (36_000 * 2 + 6000 * 3)


TRAINED = """
import contextlib, bigtrk
settings = ["data.train=[{graphs}]", "model.hidden=32", "training.epochs=2", "run.folder={run}"]
with contextlib.redirect_stdout(sys.stderr):
    bigtrk.train(bigtrk.configure(*settings, "optimizer.lr=0.01"))
"""


def test_a_training_has_the_same_bits_with_and_without(tmp_path: Path) -> None:
    made = ["bigtrk simulate events --events 2 --particles 1500", "bigtrk build events graphs"]
    run_in_one(made, tmp_path)
    bits = []  # of edges' rows of some 2 MiB
    for name, threshold in (("pool", {}), ("glibc", {"MALLOC_MMAP_THRESHOLD_": str(FROM_SYSTEM)})):
        told(TRAINED.format(graphs=tmp_path / "graphs", run=tmp_path / name), **threshold)
        bits.append((tmp_path / name / "model.safetensors").read_bytes())
    assert bits[0] == bits[1]
