"""The ranks: each one's device, its share of its host, where ranks meet, and how they are named."""

import os
import re
from collections.abc import Iterable, Mapping
from zlib import crc32

import torch

from bigtrk.errors import RankError
from bigtrk.launchers import Place, find_place, whole
from bigtrk.machine import cpu_info, memory_bytes, open_cores
from bigtrk.process import give_back_large_blocks

# The rest of a rank's memory is left for libraries, fragments and other processes.
FILLED = 0.9
_MOST_NAMED = 8
_LAST_PORT = 65535
_SET_PLACE = ("torchrun", "deepspeed")  # launchers, and users who set RANK by hand
_STEPS_APART = 7919  # ports between two steps of a job; consecutive jobs are 1 port apart


class Ranks(Place):
    """The rank, world and host of this process, and its device."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """The accelerator of this rank if there is one, else the CPU."""
        if torch.cuda.is_available():
            return torch.device("cuda", self.local_rank % torch.cuda.device_count())
        return torch.device("cpu")


def discover(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Finds this process's rank, world and host, as `find_place` does."""
    return Ranks(**vars(find_place(environment)))


def configure_process(ranks: Ranks) -> None:
    """Gives this rank its share of the host's cores, gives large tensors huge pages, and makes
    matrix products sum in a fixed order.

    Call it before the first tensor is made. Settings in the user's environment win.
    """
    order_sums()
    torch.set_num_threads(cores_of_rank(ranks, open_cores()))
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch reads it at its first allocation
    give_back_large_blocks()


def order_sums() -> None:
    """Makes cuBLAS's and MKL's products repeat bit for bit; call it before the first of them.

    cuBLAS promises this with a workspace of this kind (32 MiB), MKL in its strict mode, which it
    has on Intel's CPUs only.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if cpu_info("vendor_id") == "GenuineIntel":
        os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


def cores_of_rank(
    ranks: Ranks, open_cores: int, environment: Mapping[str, str] = os.environ
) -> int:
    """Returns how many of the `open_cores`, on which this process may run, this rank uses.

    OMP_NUM_THREADS, or the first number of its list, is the user's choice and wins. Next, under
    srun, comes --cpus-per-task, at most open_cores. Else the host's ranks share them equally.
    """
    said = environment.get("OMP_NUM_THREADS", "").strip()
    outermost = said.partition(",")[0].strip()
    # torchrun gives several ranks 1 where nothing is set: "1,1" is a user's choice, 1 is not.
    by_torchrun = said == "1" and ranks.launcher == "torchrun" and ranks.local_size > 1
    if outermost.isdecimal() and int(outermost) and not by_torchrun:
        return int(outermost)
    asked = environment.get("SLURM_CPUS_PER_TASK")
    if ranks.launcher == "srun" and asked:
        return min(int(asked), open_cores)
    return max(1, open_cores // ranks.local_size)


def memory_of_rank(ranks: Ranks) -> float:
    """Returns how many bytes this rank may fill: nine tenths of its accelerator's memory, or of its
    share of the host's.
    """
    if ranks.device.type == "cuda":
        return FILLED * float(torch.cuda.get_device_properties(ranks.device).total_memory)
    return FILLED * memory_bytes() / ranks.local_size


def publish(ranks: Ranks, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables that torch.distributed and DeepSpeed read, made from any launcher's.
    Raises RankError if the environment does not say where several ranks meet, or the port is
    impossible.
    """
    # SLURM_LAUNCH_NODE_IPADDR is no help: srun may run on a login node, or outside the step's
    # nodes.
    slurm = ranks.launcher == "srun"
    nodes = environment.get("SLURM_STEP_NODELIST")
    if slurm and not nodes:
        raise RankError("SLURM_STEP_NODELIST is not set; start the ranks with srun, which sets it")
    first_host = "127.0.0.1"
    if slurm and nodes:
        # "nid0012" of "nid[0012-0014,0020],x1". A name may have several brackets, such as
        # "rack[0-1]n[3-5]": each gives its first number.
        name = re.split(r",(?![^\[]*\])", nodes)[0]
        first_host = re.sub(r"\[(\w+)[^\]]*\]", r"\1", name)
    place = {"MASTER_ADDR": first_host, "MASTER_PORT": str(_port(ranks, environment))}
    if ranks.world_size > 1:
        needed = list(place) if ranks.launcher in _SET_PLACE else []
        if ranks.launcher == "mpirun" and ranks.local_size < ranks.world_size:
            needed = ["MASTER_ADDR"]
        for name in needed:
            if not environment.get(name):
                remedy = "set MASTER_ADDR to rank 0's host, and MASTER_PORT to a free port there"
                raise RankError(f"{name} is not set; {remedy}")
        port = whole({**place, **environment}, "MASTER_PORT")
        if not 0 < port <= _LAST_PORT:
            raise RankError(f"MASTER_PORT={port}: must be a port number from 1 to {_LAST_PORT}")
    return {
        "RANK": str(ranks.rank),
        "WORLD_SIZE": str(ranks.world_size),
        "LOCAL_RANK": str(ranks.local_rank),
        **{name: environment.get(name, default) for name, default in place.items()},
    }


def _port(ranks: Ranks, environment: Mapping[str, str]) -> int:
    """Returns a port that differs between jobs, steps of a job, and mpirun launches on one node."""
    job = whole({"SLURM_JOB_ID": "0", **environment}, "SLURM_JOB_ID")
    if ranks.launcher == "srun":
        job += _STEPS_APART * whole({"SLURM_STEP_ID": "0", **environment}, "SLURM_STEP_ID")
    if ranks.launcher == "mpirun":  # Open MPI's and PALS's names of the launch; MPICH gives none
        launch = environment.get("PMIX_NAMESPACE") or environment.get("PALS_APID", "")
        job += crc32(launch.encode())
    return 20000 + job % 20000


def named(ranks: Iterable[int]) -> str:
    """Returns the text for ascending `ranks`: "rank 3", "ranks 0-2, 7"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs[:_MOST_NAMED]]
    more = sum(map(len, runs[_MOST_NAMED:]))
    several = "s" if len(runs) > 1 or len(runs[0]) > 1 else ""
    return f"rank{several} {', '.join(shown)}{f' and {more} more' if more else ''}"
