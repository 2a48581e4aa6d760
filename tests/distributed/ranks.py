"""Real processes over gloo, for tests."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from bigtrk.parallel.process_group import close_process_group
from bigtrk.parallel.ranks import Ranks, publish

# Processes are forked from one that has imported what takes long: half the time of all these tests.
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["tests.distributed.preloaded"])
# A process without others, for what needs no group.
ALONE = Ranks(0, 1, 0, 1, "test")
# By name, what ranks call and its arguments after the ranks.
Works = Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]


@dataclass(frozen=True)
class Done:
    """What works returned, by the number of ranks, by name, then by rank; the folder of runs."""

    of: dict[int, dict[str, list[Any]]]
    folder: Path


def run_ranks(
    world_size: int, work: Callable[..., Any], *arguments: Any, start_method: str = "forkserver"
) -> list[Any]:
    """Run `work(ranks, *arguments)` on `world_size` processes; their results, by rank.

    `work` is a module-level function; it returns what pickle can store. start_method: `fork` spares
    a process of its own its server; only where nothing has started a thread.
    """
    with tempfile.TemporaryDirectory() as folder:
        start_processes(
            _rank,
            args=(world_size, folder, os.getpid(), work, arguments),
            nprocs=world_size,
            start_method=start_method,
        )
        files = [Path(folder) / f"{rank}.pt" for rank in range(world_size)]
        return [torch.load(file, weights_only=False) for file in files]


def run_all(world_size: int, works: Works) -> dict[str, list[Any]]:
    """Run several works, each with its arguments, one after another on the same processes, whose
    start takes longer than most works; their results by name, then by rank.
    """
    results = run_ranks(world_size, _in_turn, works)
    return {name: [of_rank[name] for of_rank in results] for name in works}


def _in_turn(ranks: Ranks, works: Works) -> dict[str, Any]:
    return {name: work(ranks, *arguments) for name, (work, arguments) in works.items()}


def _rank(
    rank: int,
    world_size: int,
    folder: str,
    parent: int,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    _print_as(parent)
    ranks = Ranks(rank, world_size, rank, world_size, "test")
    os.environ.update(publish(ranks), DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size
    )
    result = work(ranks, *arguments)
    torch.save(result, Path(folder) / f"{rank}.pt")
    close_process_group()


def _print_as(process: int) -> None:
    """Prints to where `process` prints now: the server still prints to where it did at first."""
    for descriptor in (1, 2):
        there = os.open(f"/proc/{process}/fd/{descriptor}", os.O_WRONLY | os.O_APPEND)
        os.dup2(there, descriptor)
        os.close(there)
