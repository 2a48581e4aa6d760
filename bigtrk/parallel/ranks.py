"""Who this process is among the ranks, whatever launched it."""

import gc
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from bigtrk.errors import InputError


@dataclass(frozen=True)
class Ranks:
    """This process's place: `rank` of `world_size`, `local_rank` of `local_size` on its host."""

    rank: int
    world_size: int
    local_rank: int
    local_size: int
    launcher: str

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        """The accelerator of this rank where there is one, else the CPU."""
        if torch.cuda.is_available():
            return torch.device("cuda", self.local_rank % torch.cuda.device_count())
        return torch.device("cpu")


def discover(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Read the place from what deepspeed, torchrun or srun left in the environment.

    Without any of them this is rank 0 of 1 (plain python).
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _from_launcher(environment)
    # The tasks of the step: SLURM_NTASKS, the job's, is also set in the batch script and in the
    # shell that salloc opens, which are one plain process each.
    if int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        return _from_slurm(environment)
    return Ranks(0, 1, 0, 1, "python")


def _from_launcher(environment: Mapping[str, str]) -> Ranks:
    world_size = int(environment["WORLD_SIZE"])
    local_size = environment.get("LOCAL_WORLD_SIZE") or environment.get("LOCAL_SIZE")
    return Ranks(
        rank=int(environment["RANK"]),
        world_size=world_size,
        local_rank=int(environment.get("LOCAL_RANK", "0")),
        local_size=int(local_size or world_size),
        launcher="torchrun" if "TORCHELASTIC_RUN_ID" in environment else "deepspeed",
    )


def _from_slurm(environment: Mapping[str, str]) -> Ranks:
    per_node = _tasks_per_node(environment["SLURM_STEP_TASKS_PER_NODE"])
    return Ranks(
        rank=int(environment["SLURM_PROCID"]),
        world_size=int(environment["SLURM_STEP_NUM_TASKS"]),
        local_rank=int(environment["SLURM_LOCALID"]),
        local_size=per_node[int(environment["SLURM_NODEID"])],
        launcher="srun",
    )


def _tasks_per_node(text: str) -> list[int]:
    """Tasks by node of the step: "4(x2),3" is [4, 4, 3]."""
    tasks = []
    for item in text.split(","):
        count, _, repeats = item.rstrip(")").partition("(x")
        tasks += [int(count)] * int(repeats or 1)
    return tasks


def _first_host(nodes: str) -> str:
    """The first of a SLURM node list, where rank 0 is: "nid[0012-0014,0020],x1" is "nid0012"."""
    # A list may have several brackets in a name ("rack[0-1]n[3-5]"): each gives its first number.
    name = re.split(r",(?![^\[]*\])", nodes)[0]
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", name)


def publish(ranks: Ranks, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that torch.distributed and DeepSpeed read, for launchers that set others."""
    # Not SLURM_LAUNCH_NODE_IPADDR: srun may run on a login node, or outside the step's nodes.
    slurm = ranks.launcher == "srun"
    first_host = _first_host(environment["SLURM_STEP_NODELIST"]) if slurm else "127.0.0.1"
    return {
        "RANK": str(ranks.rank),
        "WORLD_SIZE": str(ranks.world_size),
        "LOCAL_RANK": str(ranks.local_rank),
        "MASTER_ADDR": environment.get("MASTER_ADDR", first_host),
        # Derived from the job id, so that two jobs sharing a node do not meet.
        "MASTER_PORT": environment.get(
            "MASTER_PORT", str(20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000)
        ),
    }


@contextmanager
def process_group(ranks: Ranks) -> Iterator[None]:
    """The world's process group (nccl on accelerators, gloo on CPUs) while the block runs."""
    on_cuda = ranks.device.type == "cuda"
    if on_cuda:
        torch.cuda.set_device(ranks.device)
    else:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.update(publish(ranks))
    backend = "nccl" if on_cuda else "gloo"
    if ranks.world_size == 1:
        # No port to take: several single-rank runs share a host.
        store = dist.HashStore()  # type: ignore[attr-defined]  # exported, not in __all__
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    else:
        _join(backend)
    try:
        yield
    finally:
        close_process_group()


def _join(backend: str) -> None:
    try:
        dist.init_process_group(backend)
    except dist.DistNetworkError as error:
        port = os.environ["MASTER_PORT"]
        raise InputError(
            f"the ranks cannot meet at {os.environ['MASTER_ADDR']}, port {port} ({error}); where "
            f"another job has the port, choose one with the launcher's --master_port"
        ) from None


def close_process_group() -> None:
    """Destroy the process group, leaving its threads nothing to do while the interpreter ends.

    DistributedDataParallel leaks references to the group, so gloo's threads outlive it. One that
    drops its last piece of work (which holds a Python object) during interpreter shutdown aborts
    the process: 6 runs in 50 with torch 2.13. Collecting garbage, then yielding the interpreter
    lock for a moment, lets them finish.
    """
    gc.collect()
    dist.destroy_process_group()
    time.sleep(0.1)
