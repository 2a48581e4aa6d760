"""Large tensors of a training lie on huge pages, small ones in memory that is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
only_if_asked = pytest.mark.skipif(
    not ENABLED.exists() or "[madvise]" not in ENABLED.read_text(),
    reason="this kernel gives huge pages to all or to none",
)
START = """
import bigtrk.program, torch
from bigtrk.parallel.ranks import configure_process, discover
configure_process(discover())
"""
HUGE = """
large = torch.ones(16 * 2**20)
lines = open("/proc/self/smaps_rollup").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("AnonHugePages")))
"""
# Of the second time that ten blocks of 1 MiB are filled and freed. They are not tensors, of which
# small parts may lie at the heap's end and keep what is before them.
FAULTS = """
import ctypes
from resource import RUSAGE_SELF, getrusage
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
for _ in range(2):
    before = getrusage(RUSAGE_SELF).ru_minflt
    blocks = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(2**20))) for _ in range(10)]
    for block in blocks:
        ctypes.memset(block, 1, 2**20)
    for block in reversed(blocks):
        libc.free(block)
print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""

# MiB that a process holds after it has freed all but the last of ten blocks of 16 MiB.
FREED = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // 2**20

before = held()
blocks = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size * 2**20))) for size in [16] * 10 + [1]]
for block in blocks[:-1]:
    ctypes.memset(block, 1, 16 * 2**20)
for block in blocks[:-1]:
    libc.free(block)
print(held() - before)
"""

COUNTED = """
import ctypes, tempfile
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(file.read().decode().count("<heap nr="))
"""
# Of four threads that hold a small block each.
HEAPS = """
import ctypes, threading
from bigtrk.process import share_heap
share_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
all_hold = threading.Barrier(4)

def hold():
    libc.malloc(ctypes.c_size_t(1000))
    all_hold.wait()

threads = [threading.Thread(target=hold) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""

# The size in ":4096:8", which is bigtrk's, or in a user's ":16:8".
ORDER = """
import os
print(os.environ["CUBLAS_WORKSPACE_CONFIG"].split(":")[1])
"""
# How many different gradients of a weight one to three threads give.
SUMS = """
rows, made = torch.rand(5000, 16), torch.rand(5000, 16)
found = set()
for threads in (1, 2, 3):
    torch.set_num_threads(threads)
    found.add((made.t() @ rows).numpy().tobytes())
print(len(found))
"""


def told(script: str, **environment: str) -> list[int]:
    """Returns the numbers that `script` prints in a process that was configured as a rank."""
    program = [sys.executable, "-c", START + script]
    # Those of this process would hide that a program sets none.
    ours = ("CUBLAS_WORKSPACE_CONFIG", "MKL_CBWR")
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    return [*map(int, subprocess.check_output(program, env={**inherited, **environment}).split())]


@only_if_asked
def test_large_tensors_lie_on_huge_pages() -> None:
    assert told(HUGE)[0] > 32 * 1024  # KiB, of 64 MiB


def test_a_process_is_configured_unless_the_user_s_environment_says_otherwise() -> None:
    heaps, faults, freed, workspace, orders = told(HEAPS + COUNTED + FAULTS + FREED + ORDER + SUMS)
    assert faults < 1000, "of 2560 pages: small blocks are not faulted in again"
    assert freed < 10, "MiB of 160: large blocks go back to the system"
    assert (orders, workspace) == (1, 4096), "products have one on any number of threads"
    assert heaps == 1, "threads share one"
    heaps, freed, workspace = told(
        HEAPS + COUNTED + FREED + ORDER,
        MALLOC_MMAP_THRESHOLD_="33554432",
        MALLOC_ARENA_MAX="8",
        CUBLAS_WORKSPACE_CONFIG=":16:8",
    )
    assert freed > 100
    assert workspace == 16
    assert heaps > 1


# The cores of this thread, and of those that start within the group and after it.
BESIDE = """
from concurrent.futures import ThreadPoolExecutor
from bigtrk.parallel.process_group import process_group

def cores():
    _ = torch.ones(2**20) * 2  # is large enough for several cores
    return torch.get_num_threads()

def of_another():
    with ThreadPoolExecutor(1) as other:
        return other.submit(cores).result()

with process_group(discover()):
    print(cores(), of_another(), cores(), sep="", end="")
print(cores(), of_another(), sep="")
"""
# A group of a GPU, which is not joined.
ON_GPU = """
from bigtrk.parallel import process_group as groups
from bigtrk.parallel.ranks import Ranks
Ranks.device = property(lambda _: torch.device("cuda", 0))
torch.cuda.set_device = lambda _: None
groups.dist.init_process_group = lambda *_, **__: None
groups.close_process_group = lambda: None
"""
# The threads that collectives start beside those of gloo: a team of OpenMP's for each of them.
STARTED = """
import os
import torch.distributed as dist
from bigtrk.parallel.process_group import process_group
with process_group(discover()):
    mine = torch.ones(2**20)
    _ = mine * 2  # this thread's team
    before = len(os.listdir("/proc/self/task"))
    for _ in range(8):
        dist.all_gather_into_tensor(torch.empty(2**20), mine)
        dist.reduce_scatter_tensor(torch.empty(2**20), mine)
    print(len(os.listdir("/proc/self/task")) - before)
"""


def test_threads_beside_a_computation_leave_it_its_cores() -> None:
    """Reading and sampling for a GPU have all of the cores; collectives start no teams."""
    assert told(STARTED + BESIDE + ON_GPU + BESIDE, OMP_NUM_THREADS="3") == [0, 31333, 33333]
