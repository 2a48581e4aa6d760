"""Each launcher leaves the rank of a process in the environment; a rank configures its process:
large tensors lie on huge pages, small blocks in memory that is kept.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bigtrk.errors import RankError
from bigtrk.parallel.ranks import Ranks, cores_of_rank, discover, named, publish

# As SLURM 22.05 set them on a real cluster: task 5 of 8 on two nodes, srun called on a third host.
SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7",
    "SLURM_JOB_ID": "41234",
}
# The shell of `salloc -N2 --ntasks-per-node=2`: a step of one task in a job of four.
SALLOC = {
    "SLURM_STEP_ID": "4294967290",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_STEP_NODELIST": "node1",
}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none",
}
# As Open MPI, HPE's PALS and MPICH set them: rank 3 of 4 on two hosts.
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_RANK": "3",
    "PMIX_NAMESPACE": "prterun-node1-17@1",
}
PMI = {"PMI_RANK": "3", "PMI_SIZE": "4"}
PALS = {**PMI, "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2", "PALS_RANKID": "3"}
MPICH = {**PMI, "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
MPI_RANKS = Ranks(3, 4, 1, 2, "mpirun")
DEEPSPEED = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Ranks(0, 1, 0, 1, "python")),
        (TORCHRUN, Ranks(3, 4, 1, 2, "torchrun")),
        (DEEPSPEED, Ranks(3, 4, 1, 2, "deepspeed")),
        (SLURM, Ranks(5, 8, 1, 4, "srun")),
        # The batch script of a job, outside srun, is one plain process.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Ranks(0, 1, 0, 1, "python")),
        (SALLOC, Ranks(0, 1, 0, 1, "python")),
        # Nodes of unequal numbers of tasks.
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "5,3"}, Ranks(5, 8, 1, 3, "srun")),
        (OPEN_MPI, MPI_RANKS),
        (PALS, MPI_RANKS),
        (MPICH, MPI_RANKS),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, Ranks(0, 1, 0, 1, "python")),
        # A launcher started inside a SLURM job wins over SLURM.
        ({**SLURM, **TORCHRUN}, Ranks(3, 4, 1, 2, "torchrun")),
        ({**SLURM, **OPEN_MPI}, MPI_RANKS),
        # srun sets PMI's variables, too, and those of PMIx for one task.
        ({**SLURM, **MPICH, "PMI_RANK": "5", "PMI_SIZE": "8"}, Ranks(5, 8, 1, 4, "srun")),
        ({**SALLOC, "PMIX_RANK": "0"}, Ranks(0, 1, 0, 1, "python")),
        # The shell of `srun --pty bash`, and variables that are set to nothing.
        ({**SLURM, "SLURM_PTY_PORT": "4"}, Ranks(0, 1, 0, 1, "python")),
        ({"RANK": "", "WORLD_SIZE": ""}, Ranks(0, 1, 0, 1, "python")),
    ],
)
def test_discover(environment: dict[str, str], expected: Ranks) -> None:
    assert discover(environment) == expected


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({**TORCHRUN, "RANK": "4"}, "RANK=4: must be below WORLD_SIZE=4"),
        ({**TORCHRUN, "RANK": "one"}, "RANK=one: must be a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE=0: must be 1 or more"),
        ({"RANK": "1"}, "RANK is set, but WORLD_SIZE is not"),
        ({**TORCHRUN, "LOCAL_RANK": "2"}, "LOCAL_RANK=2: must be below LOCAL_WORLD_SIZE=2"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "5"}, "LOCAL_WORLD_SIZE=5: must not be above WORLD_SIZE"),
        (PMI, "PMI_RANK is set, but bigtrk cannot find the number of ranks; start them with"),
        ({**SALLOC, "PMIX_RANK": "1"}, "PMIX_RANK is set, but bigtrk cannot find the number of"),
        ({"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2"}, "FLUX_TASK_RANK is set, but bigtrk"),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "4"}, "JSM_NAMESPACE_RANK is set, but"),
        ({**SLURM, "SLURM_PROCID": "8"}, "SLURM_PROCID=8: must be below SLURM_STEP_NUM_TASKS=8"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_TASKS_PER_NODE: not set"),
        ({**SLURM, "SLURM_NODEID": "7"}, r"SLURM_STEP_TASKS_PER_NODE: 4\(x2\), but must give the"),
    ],
)
def test_impossible_numbers_are_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(RankError, match=f"^{said}"):
        discover(environment)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"MASTER_PORT": "29500"}, "MASTER_ADDR is not set"),
        ({"MASTER_ADDR": "node1"}, "MASTER_PORT is not set"),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "http"}, "MASTER_PORT=http: must be a whole"),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "65536"}, "MASTER_PORT=65536: must be a port"),
    ],
)
def test_ranks_need_a_place_to_meet(place: dict[str, str], said: str) -> None:
    environment = {**TORCHRUN, **place}
    with pytest.raises(RankError, match=f"^{said}"):
        publish(discover(environment), environment)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([0, 1, 2], "ranks 0-2"),
        ([0, 2, 3, 7], "ranks 0, 2-3, 7"),
        (range(0, 30, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 7 more"),
    ],
)
def test_ranks_are_named_in_a_few_words(ranks: list[int], text: str) -> None:
    assert named(ranks) == text


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node[1-2]", "node1"),
        ("nid[001012-001014,001200]", "nid001012"),
        ("gpu-a7", "gpu-a7"),
        ("rack[0-1]n[3-5,9],x1", "rack0n3"),
        ("node[1-2].cluster.org", "node1.cluster.org"),
    ],
)
def test_srun_tasks_meet_on_the_first_node_of_the_step(nodes: str, first: str) -> None:
    environment = {**SLURM, "SLURM_STEP_NODELIST": nodes}
    variables = publish(discover(environment), environment)
    assert variables["MASTER_ADDR"] == first
    assert variables["MASTER_PORT"] == str(20000 + 41234 % 20000)
    assert (variables["RANK"], variables["WORLD_SIZE"]) == ("5", "8")


def test_two_steps_or_launches_of_one_job_do_not_meet() -> None:
    two = [{**SLURM, "SLURM_STEP_ID": step} for step in ("0", "1")]
    own_host = {**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    two += [{**own_host, "PMIX_NAMESPACE": f"prterun-node1-{process}@1"} for process in (17, 18)]
    found = [publish(discover(environment), environment) for environment in two]
    assert len({variables["MASTER_PORT"] for variables in found}) == 4
    assert [variables["MASTER_ADDR"] for variables in found] == 2 * ["node1"] + 2 * ["127.0.0.1"]


def test_ranks_of_an_mpirun_on_several_hosts_are_told_where_to_meet() -> None:
    with pytest.raises(RankError, match="MASTER_ADDR is not set; set MASTER_ADDR to"):
        publish(discover(OPEN_MPI), OPEN_MPI)
    there = {**OPEN_MPI, "MASTER_ADDR": "node1"}
    assert publish(discover(there), there)["MASTER_ADDR"] == "node1"


@pytest.mark.parametrize(
    ("asked", "open_cores", "expected"),
    [
        ({}, 64, 16),  # four ranks share an unbound node
        ({"SLURM_CPUS_PER_TASK": "32"}, 32, 32),  # bound: what is open is this rank's alone
        ({"SLURM_CPUS_PER_TASK": "8"}, 64, 8),  # not bound
        ({"SLURM_CPUS_PER_TASK": "8"}, 2, 2),
        ({}, 2, 1),
    ],
)
def test_cores_of_a_srun_task(asked: dict[str, str], open_cores: int, expected: int) -> None:
    assert cores_of_rank(discover(SLURM), open_cores, {**SLURM, **asked}) == expected


@pytest.mark.parametrize(
    ("environment", "said", "expected"),
    [
        (SLURM, "6", 6),
        (SLURM, "12,2", 12),  # of nested regions: the outermost
        (SLURM, "", 16),
        (SLURM, "many", 16),
        (TORCHRUN, "3", 3),
        (TORCHRUN, "1", 32),  # set by torchrun itself
        (TORCHRUN, "1,1", 1),
        ({**TORCHRUN, "SLURM_CPUS_PER_TASK": "3"}, "1", 32),  # inside a job
        ({}, "1", 1),
    ],
)
def test_omp_num_threads_is_the_users_word(
    environment: dict[str, str], said: str, expected: int
) -> None:
    given = {**environment, "OMP_NUM_THREADS": said}
    assert cores_of_rank(discover(given), 64, given) == expected


ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
only_if_asked = pytest.mark.skipif(
    not ENABLED.exists() or "[madvise]" not in ENABLED.read_text(),
    reason="this kernel gives huge pages to all or to none",
)
START = """
import ctypes
import bigtrk.program, torch
from bigtrk.parallel.ranks import configure_process, discover
configure_process(discover())
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
"""
HUGE = """
large = torch.ones(16 * 2**20)
lines = open("/proc/self/smaps_rollup").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("AnonHugePages")))
"""
# Of the second time that ten blocks of 1 MiB are filled and freed. They are not tensors, of which
# small parts may lie at the heap's end and keep what is before them.
FAULTS = """
from resource import RUSAGE_SELF, getrusage
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
import tempfile
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(file.read().decode().count("<heap nr="))
"""
# Of four threads that hold a small block each.
HEAPS = """
import threading
from bigtrk.process import share_heap
share_heap()
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


def printed_by_a_rank(script: str, **environment: str) -> list[int]:
    """Returns the numbers that `script` prints in a process that was configured as a rank."""
    program = [sys.executable, "-c", START + script]
    # Those of this process would hide that a program sets none.
    ours = ("CUBLAS_WORKSPACE_CONFIG", "MKL_CBWR")
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    return [*map(int, subprocess.check_output(program, env={**inherited, **environment}).split())]


@only_if_asked
def test_large_tensors_lie_on_huge_pages() -> None:
    assert printed_by_a_rank(HUGE)[0] > 32 * 1024  # KiB, of 64 MiB


def test_a_process_is_configured_unless_the_user_s_environment_says_otherwise() -> None:
    heaps, faults, freed, workspace, orders = printed_by_a_rank(
        HEAPS + COUNTED + FAULTS + FREED + ORDER + SUMS
    )
    assert faults < 1000, "of 2560 pages: small blocks are not faulted in again"
    assert freed < 10, "MiB of 160: large blocks go back to the system"
    assert (orders, workspace) == (1, 4096), "products have one on any number of threads"
    assert heaps == 1, "threads share one"
    heaps, freed, workspace = printed_by_a_rank(
        HEAPS + COUNTED + FREED + ORDER,
        MALLOC_MMAP_THRESHOLD_="33554432",
        MALLOC_ARENA_MAX="8",
        CUBLAS_WORKSPACE_CONFIG=":16:8",
    )
    assert freed > 100
    assert workspace == 16
    assert heaps > 1
