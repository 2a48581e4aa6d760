"""Real processes over gloo, for tests.

The processes of each number of ranks start once and run one work after another, each in a process
group of its own: the threads of groups that are left wake up 100 times a second. A work that
changes its process for good, in which ranks leave each other waiting, or with a mesh of blocks of
ranks, whose groups DTensor remembers, asks for `fresh` ones.
"""

import atexit
import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from bigtrk.errors import InputError, RankError
from bigtrk.parallel.process_group import close_process_group
from bigtrk.parallel.ranks import Ranks, publish

# Processes are forked from one that has imported what takes long: half the time of all these tests.
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["tests.distributed.preloaded"])
# A process without others, for what needs no group.
ALONE = Ranks(0, 1, 0, 1, "test")
LONGEST = 600  # s that a work may take
# By name, what ranks call and its arguments after the ranks.
Works = Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]


@dataclass(frozen=True)
class Done:
    """Results of works by the number of ranks, by name, then by rank; the folder of runs."""

    of: dict[int, dict[str, list[Any]]]
    folder: Path


def message(call: Any) -> str | None:
    """Returns what a call says of bad input, if anything."""
    try:
        call()
    except InputError as error:
        return str(error)
    return None


def run_ranks(
    world_size: int, work: Callable[..., Any], *arguments: Any, fresh: str | bool = False
) -> list[Any]:
    """Run `work(ranks, *arguments)` on `world_size` processes; their results, by rank.

    `work` is a module-level function; it returns what pickle can store. fresh: start processes for
    it alone; `fork` spares a process of its own its server, where nothing has started a thread.
    """
    with tempfile.TemporaryDirectory() as folder:
        if not fresh:
            return _pool_of(world_size).run(Path(folder), work, arguments)
        start_processes(
            _rank,
            args=(world_size, Path(folder), os.getpid(), work, arguments),
            nprocs=world_size,
            start_method=fresh if isinstance(fresh, str) else "forkserver",
        )
        files = [Path(folder) / f"{rank}.pickle" for rank in range(world_size)]
        return [pickle.loads(file.read_bytes()) for file in files]


def run_all(world_size: int, works: Works) -> dict[str, list[Any]]:
    """Run several works one after another in one process group; their results by name, then by
    rank.
    """
    results = run_ranks(world_size, _in_turn, works)
    return {name: [of_rank[name] for of_rank in results] for name in works}


def said(work: Callable[[], Any]) -> Any:
    """Returns the result of a rank's work, or what the rank says where it fails alone."""
    try:
        return work()
    except RankError as error:
        return str(error)
    except RuntimeError:
        return "the other rank is gone"


def _in_turn(ranks: Ranks, works: Works) -> dict[str, Any]:
    return {name: work(ranks, *arguments) for name, (work, arguments) in works.items()}


class _Pool:
    """Processes that wait for works. A failure of one of them ends all: others may wait for it."""

    def __init__(self, world_size: int) -> None:
        pipes = [FORKSERVER.Pipe() for _ in range(world_size)]
        self._ends = [own for own, _ in pipes]
        self._processes = [
            FORKSERVER.Process(target=_serve, args=(rank, world_size, of_rank), daemon=True)
            for rank, (_, of_rank) in enumerate(pipes)
        ]
        for process in self._processes:
            process.start()
        for _, of_rank in pipes:
            of_rank.close()

    @property
    def is_usable(self) -> bool:
        return all(process.is_alive() for process in self._processes)

    def run(self, folder: Path, work: Callable[..., Any], arguments: Any) -> list[Any]:
        try:
            for end in self._ends:
                end.send_bytes(pickle.dumps((folder, os.getpid(), work, arguments)))
            answers, waiting = {}, list(self._ends)
            while waiting:
                ready = wait(waiting, LONGEST)
                assert ready, f"{work.__name__} has not ended in {LONGEST} s"
                for end in [end for end in waiting if end in ready]:
                    waiting.remove(end)
                    answers[end] = pickle.loads(end.recv_bytes())
                    if isinstance(answers[end], _Failure):
                        raise RuntimeError(answers[end].text)
            return [answers[end] for end in self._ends]
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


_pools: dict[int, _Pool] = {}


@atexit.register
def _end_pools() -> None:
    """Kills them: one whose training was stopped ignores the signal by which Python ends it."""
    for pool in _pools.values():
        pool.end()


def _pool_of(world_size: int) -> _Pool:
    pool = _pools.get(world_size)
    if pool is None or not pool.is_usable:
        if pool:
            pool.end()
        pool = _pools[world_size] = _Pool(world_size)
    return pool


@dataclass(frozen=True)
class _Failure:
    text: str


def _serve(rank: int, world_size: int, end: Connection) -> None:
    environment, place = dict(os.environ), Path.cwd()
    while True:
        try:
            folder, parent, work, arguments = pickle.loads(end.recv_bytes())
        except EOFError:  # the tests have ended
            return
        try:
            result = _run(rank, world_size, folder, parent, work, arguments)
        except Exception:
            result = _Failure(traceback.format_exc())
        end.send_bytes(pickle.dumps(result))
        os.chdir(place)
        os.environ.clear()
        os.environ.update(environment)


def _rank(rank: int, world_size: int, folder: Path, *others: Any) -> None:
    result = _run(rank, world_size, folder, *others)
    (folder / f"{rank}.pickle").write_bytes(pickle.dumps(result))


def _run(
    rank: int,
    world_size: int,
    folder: Path,
    parent: int,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> Any:
    _print_as(parent)
    ranks = Ranks(rank, world_size, rank, world_size, "test")
    os.environ.update(publish(ranks), DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size
    )
    dist.barrier()  # one that leaves at once would close what others still open
    result = work(ranks, *arguments)
    close_process_group()
    return result


def _print_as(process: int) -> None:
    """Prints to where `process` prints now: the server still prints to where it did at first."""
    for descriptor in (1, 2):
        there = os.open(f"/proc/{process}/fd/{descriptor}", os.O_WRONLY | os.O_APPEND)
        os.dup2(there, descriptor)
        os.close(there)
