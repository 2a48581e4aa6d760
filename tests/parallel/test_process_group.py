"""A process group leaves computation and other threads their cores."""

from tests.parallel.test_ranks import printed_by_a_rank

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
    assert printed_by_a_rank(STARTED + BESIDE + ON_GPU + BESIDE, OMP_NUM_THREADS="3") == [
        0,
        31333,
        33333,
    ]
