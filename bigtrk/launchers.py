"""Finds this process's place among the ranks in the environment variables of its launcher."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigtrk.errors import RankError

# The variables of the rank, the number of ranks, the rank on its host and the number on its host.
_NAMES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
_MPI = (
    tuple(f"OMPI_COMM_WORLD_{name}" for name in _NAMES),  # Open MPI
    tuple(f"MV2_COMM_WORLD_{name}" for name in _NAMES),  # MVAPICH2's mpirun_rsh
    tuple(f"PMI_{name}" for name in _NAMES),  # HPE's mpiexec (PALS)
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH's and Intel MPI's
)
# Ranks of launchers whose places are not read: of MPI without a size, flux run, jsrun.
_LONE = ("PMIX_RANK", "PALS_RANKID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK")
_SIZES = ("PMI_SIZE", "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE")
_STEP_TASKS = "SLURM_STEP_NUM_TASKS"
# The first that is set is the rank on the host.
LOCAL_RANKS = ("LOCAL_RANK", *(local_rank for _, _, local_rank, _ in _MPI), "SLURM_LOCALID")
# Without these variables a process started by a rank counts as plain Python.
PLACES = ("RANK", "WORLD_SIZE", _STEP_TASKS, *_LONE, *(name for row in _MPI for name in row))


@dataclass(frozen=True)
class Place:
    """This process's place: `rank` of `world_size`, `local_rank` of `local_size` on its host."""

    rank: int
    world_size: int
    local_rank: int
    local_size: int
    launcher: str


def find_place(environment: Mapping[str, str] = os.environ) -> Place:
    """Reads this process's place from the launcher's variables; plain Python is rank 0 of 1."""
    given = [environment.get(name) for name in ("RANK", "WORLD_SIZE")]
    if any(given) and None not in given:  # two empty variables count as not set
        sizes = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")  # torchrun's, deepspeed's
        local = next((name for name in sizes if environment.get(name)), "WORLD_SIZE")
        launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in environment else "deepspeed"
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", local)
        return _from_variables({"LOCAL_RANK": "0", **environment}, names, launcher)
    # The step's number of tasks counts: SLURM_NTASKS, the job's, is also set in the batch script
    # and in the shell that salloc opens, which are one plain process each.
    tasks = whole({_STEP_TASKS: "1", **environment}, _STEP_TASKS)
    if any(name.startswith("SLURM_PTY_") for name in environment):  # a shell: srun --pty bash
        tasks = 1
    row = next((row for row in _MPI if environment.keys() >= set(row)), None)
    mpi = _from_variables(environment, row, "mpirun") if row else None
    # An mpirun may start its daemons by srun, whose variables its ranks inherit; and srun may set
    # PMI's to the same numbers, where only its own say on which host rank 0 is.
    by_srun = mpi and (str(mpi.rank), mpi.world_size) == (environment.get("SLURM_PROCID"), tasks)
    if mpi and mpi.world_size > 1 and not by_srun:
        return mpi
    if tasks > 1:
        return _from_slurm(environment)
    # Some batch scripts set WORLD_SIZE alone, for whatever they start.
    if environment.get("RANK"):
        raise RankError("RANK is set, but WORLD_SIZE is not; set both, or neither")
    if not mpi:
        _refuse_unknown(environment)
    return Place(0, 1, 0, 1, "python")


def _from_variables(environment: Mapping[str, str], row: Sequence[str], launcher: str) -> Place:
    rank, world, local_rank, local = row
    world_size, local_size = whole(environment, world), whole(environment, local)
    at, local_at = _index(environment, rank, world), _index(environment, local_rank, local)
    if local_size > world_size:
        raise RankError(f"{local}={local_size}: must not be above {world}={world_size}")
    return Place(at, world_size, local_at, local_size, launcher)


def _from_slurm(environment: Mapping[str, str]) -> Place:
    name = "SLURM_STEP_TASKS_PER_NODE"
    try:
        # "4(x2),3" is [4, 4, 3].
        items = [item.rstrip(")").partition("(x") for item in environment[name].split(",")]
        per_node = [int(count) for count, _, times in items for _ in range(int(times or 1))]
        local_size = per_node[whole(environment, "SLURM_NODEID")]
    except (KeyError, ValueError, IndexError):
        said = f"{name}: {environment.get(name, 'not set')}, but must give the ranks on this host"
        raise RankError(f"{said}; start the ranks by srun, which sets it") from None
    rank = _index(environment, "SLURM_PROCID", _STEP_TASKS)
    world_size, local_rank = (whole(environment, one) for one in (_STEP_TASKS, "SLURM_LOCALID"))
    return Place(rank, world_size, local_rank, local_size, "srun")


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    """Raises RankError for a rank of an unknown launcher, which would train alone. srun may set
    rank 0 of PMI or PMIx in a step of one task.
    """
    ranks = (*_LONE, *(rank for rank, *_ in _MPI))
    found = [name for name in ranks if name in environment]
    is_step = _STEP_TASKS in environment and all(environment[name] == "0" for name in found)
    sizes = {environment[name] for name in _SIZES if name in environment}
    if found and sizes != {"1"} and not (is_step and not sizes):
        raise RankError(
            f"{found[0]} is set, but bigtrk cannot find the number of ranks; start them with "
            "torchrun, deepspeed, srun, or mpirun of Open MPI, MPICH or Intel MPI, or set RANK, "
            "WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        )


def whole(environment: Mapping[str, str], name: str) -> int:
    """Reads the whole number in variable `name`; RankError if there is none."""
    text = environment.get(name)
    if text is None:
        raise RankError(f"{name} is not set; set it, or start the ranks with a launcher")
    if not re.fullmatch("[0-9]+", text):
        raise RankError(f"{name}={text}: must be a whole number, 0 or more")
    return int(text)


def _index(environment: Mapping[str, str], name: str, size: str) -> int:
    """Reads variable `name`, a whole number below that in variable `size`; RankError otherwise."""
    index, end = whole(environment, name), whole(environment, size)
    if end == 0:
        raise RankError(f"{size}=0: must be 1 or more")
    if index >= end:
        raise RankError(f"{name}={index}: must be below {size}={end}, since ranks count from 0")
    return index
