"""A rank's part of its host: cores and memory."""

import os
from collections.abc import Mapping

import torch

from bigtrk.machine import cpu_info, memory_bytes, open_cores
from bigtrk.parallel.ranks import Ranks
from bigtrk.process import give_back_large_blocks

# The rest of a rank's memory is for what is not predicted: libraries, fragments, other processes.
FILLED = 0.9


def configure_process(ranks: Ranks) -> None:
    """Gives this rank its share of the host's cores, large tensors huge pages, and matrix products
    one order of their sums.

    Call it before the first tensor is made. Settings in the user's environment win.
    """
    order_sums()
    torch.set_num_threads(cores_of_rank(ranks, open_cores()))
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch reads it at its first allocation
    give_back_large_blocks()


def order_sums() -> None:
    """Gives cuBLAS's and MKL's products the same bits twice; call it before the first of them.

    cuBLAS promises them with a workspace of this kind (32 MiB), MKL in its strict mode, which it
    has on Intel's CPUs only.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if cpu_info("vendor_id") == "GenuineIntel":
        os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


def cores_of_rank(
    ranks: Ranks, open_cores: int, environment: Mapping[str, str] = os.environ
) -> int:
    """Returns this rank's number of the `open_cores`, which this process may run on.

    OMP_NUM_THREADS is the user's choice and wins; then, under srun, --cpus-per-task, at most those
    open; elsewhere the ranks of a host share the open cores equally.
    """
    if threads := _omp_threads(ranks, environment):
        return threads
    asked = environment.get("SLURM_CPUS_PER_TASK")
    if ranks.launcher == "srun" and asked:
        return min(int(asked), open_cores)
    return max(1, open_cores // ranks.local_size)


def _omp_threads(ranks: Ranks, environment: Mapping[str, str]) -> int | None:
    """Returns the number in OMP_NUM_THREADS, the first of a list; None where it says nothing.

    torchrun sets 1 where nothing is set, so a mere 1 is not taken for the user's choice if it
    started several ranks; "1,1" is.
    """
    said = environment.get("OMP_NUM_THREADS", "").strip()
    outermost = said.partition(",")[0].strip()
    threads = int(outermost) if outermost.isdecimal() else 0
    by_torchrun = said == "1" and ranks.launcher == "torchrun" and ranks.local_size > 1
    return None if by_torchrun else threads or None


def memory_of_rank(ranks: Ranks) -> float:
    """Returns the bytes that this rank may fill: nine tenths of its accelerator's, or of its share
    of the host's.
    """
    if ranks.device.type == "cuda":
        return FILLED * float(torch.cuda.get_device_properties(ranks.device).total_memory)
    return FILLED * memory_bytes() / ranks.local_size
