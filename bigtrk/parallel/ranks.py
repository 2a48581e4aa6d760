"""The place of this process among the ranks, whatever launched it."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from bigtrk.errors import RankError

_MOST_NAMED = 8
_LAST_PORT = 65535
_SET_PLACE = ("torchrun", "deepspeed")  # launchers, and users who set RANK by hand


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
        """Returns the accelerator of this rank where there is one, else the CPU."""
        if torch.cuda.is_available():
            return torch.device("cuda", self.local_rank % torch.cuda.device_count())
        return torch.device("cpu")


def discover(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Reads the place from what deepspeed, torchrun or srun left in the environment.

    Without any of them this is rank 0 of 1 (plain python).

    Raises:
        RankError: a variable is missing, is no number, or does not fit another.
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _from_launcher(environment)
    # The step's number of tasks counts: SLURM_NTASKS, the job's, is also set in the batch script
    # and in the shell that salloc opens, which are one plain process each.
    if whole({"SLURM_STEP_NUM_TASKS": "1", **environment}, "SLURM_STEP_NUM_TASKS") > 1:
        return _from_slurm(environment)
    # Some batch scripts set WORLD_SIZE alone, for whatever they start.
    if "RANK" in environment:
        raise RankError("RANK is set, but WORLD_SIZE is not; set both, or neither")
    return Ranks(0, 1, 0, 1, "python")


def _from_launcher(environment: Mapping[str, str]) -> Ranks:
    sizes = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")  # torchrun's, deepspeed's
    local = next((name for name in sizes if environment.get(name)), "WORLD_SIZE")
    rank = _index(environment, "RANK", "WORLD_SIZE")
    local_rank = _index(environment, "LOCAL_RANK", local) if "LOCAL_RANK" in environment else 0
    world_size, local_size = whole(environment, "WORLD_SIZE"), whole(environment, local)
    if local_size > world_size:
        raise RankError(f"{local}={local_size}: must not be above WORLD_SIZE={world_size}")
    launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in environment else "deepspeed"
    return Ranks(rank, world_size, local_rank, local_size, launcher)


def _from_slurm(environment: Mapping[str, str]) -> Ranks:
    per_node = _tasks_per_node(environment["SLURM_STEP_TASKS_PER_NODE"])
    return Ranks(
        rank=_index(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        world_size=whole(environment, "SLURM_STEP_NUM_TASKS"),
        local_rank=whole(environment, "SLURM_LOCALID"),
        local_size=per_node[whole(environment, "SLURM_NODEID")],
        launcher="srun",
    )


def _tasks_per_node(text: str) -> list[int]:
    """Parses the step's tasks by node: "4(x2),3" is [4, 4, 3]."""
    tasks = []
    for item in text.split(","):
        count, _, repeats = item.rstrip(")").partition("(x")
        tasks += [int(count)] * int(repeats or 1)
    return tasks


def whole(environment: Mapping[str, str], name: str) -> int:
    """Reads the whole number in the variable `name`.

    Raises:
        RankError: it is not set, or is no whole number of 0 or more.
    """
    text = environment.get(name)
    if text is None:
        raise RankError(f"{name} is not set; set it, or start the ranks with a launcher")
    if not re.fullmatch("[0-9]+", text):
        raise RankError(f"{name}={text}: must be a whole number, 0 or more")
    return int(text)


def _index(environment: Mapping[str, str], name: str, size: str) -> int:
    """Reads one of the numbers 0, 1, ... below that of the variable `size`."""
    index, end = whole(environment, name), whole(environment, size)
    if end == 0:
        raise RankError(f"{size}=0: must be 1 or more")
    if index >= end:
        raise RankError(f"{name}={index}: must be below {size}={end}, since the first is 0")
    return index


def _first_host(nodes: str) -> str:
    """Returns the first of a SLURM node list, where rank 0 is: "nid0012" of
    "nid[0012-0014,0020],x1".
    """
    # A list may have several brackets in a name ("rack[0-1]n[3-5]"): each gives its first number.
    name = re.split(r",(?![^\[]*\])", nodes)[0]
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", name)


def publish(ranks: Ranks, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Sets the variables that torch.distributed and DeepSpeed read, for launchers that set others.

    Raises:
        RankError: the environment does not say where several ranks meet, or the port is impossible.
    """
    # SLURM_LAUNCH_NODE_IPADDR is no help: srun may run on a login node, or outside the step's
    # nodes.
    slurm = ranks.launcher == "srun"
    first_host = _first_host(environment["SLURM_STEP_NODELIST"]) if slurm else "127.0.0.1"
    # The port follows from the job id, so that two jobs sharing a node do not meet.
    port = str(20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000)
    place = {"MASTER_ADDR": first_host, "MASTER_PORT": port}
    if ranks.world_size > 1:
        _check_place(environment, place if ranks.launcher in _SET_PLACE else ())
    return {
        "RANK": str(ranks.rank),
        "WORLD_SIZE": str(ranks.world_size),
        "LOCAL_RANK": str(ranks.local_rank),
        **{name: environment.get(name, default) for name, default in place.items()},
    }


def _check_place(environment: Mapping[str, str], needed: Iterable[str]) -> None:
    for name in needed:
        if not environment.get(name):
            raise RankError(f"{name} is not set; set that of rank 0, where all ranks meet")
    if "MASTER_PORT" in environment and not 0 < whole(environment, "MASTER_PORT") <= _LAST_PORT:
        port = environment["MASTER_PORT"]
        raise RankError(f"MASTER_PORT={port}: must be a port, 1 to {_LAST_PORT}")


def named(ranks: Iterable[int]) -> str:
    """Writes ascending `ranks` for people: "rank 3", "ranks 0-2, 7"."""
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
