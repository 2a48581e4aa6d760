"""Real processes over gloo, for tests."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from bigtrk.parallel.ranks import Ranks, close_process_group, publish


def run_ranks(world_size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run `work(ranks, *arguments)` on `world_size` processes; their results, by rank.

    `work` is a module-level function; it returns what pickle can store.
    """
    with tempfile.TemporaryDirectory() as folder:
        start_processes(
            _rank,
            args=(world_size, folder, work, arguments),
            nprocs=world_size,
            start_method="spawn",
        )
        files = [Path(folder) / f"{rank}.pt" for rank in range(world_size)]
        return [torch.load(file, weights_only=False) for file in files]


def _rank(
    rank: int, world_size: int, folder: str, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    ranks = Ranks(rank, world_size, rank, world_size, "test")
    os.environ.update(publish(ranks), DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size
    )
    result = work(ranks, *arguments)
    torch.save(result, Path(folder) / f"{rank}.pt")
    close_process_group()
