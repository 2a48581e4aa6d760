"""bigtrk/train.py on ranks that are started one by one, as by hand."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bigtrk import program
from tests.distributed.ranks import FORKSERVER

SILENT = 6  # s
LONGEST = 60  # s


@dataclass(frozen=True)
class Start:
    """A rank of `world_size`, `after` some seconds. before: called in its process first, to stop
    it at some time.
    """

    rank: int
    world_size: int
    settings: tuple[str, ...] = ()
    after: float = 0.0
    before: Callable[[], None] | None = None


@dataclass(frozen=True)
class End:
    """Exit status, None of one that did not end; lines on stderr."""

    status: int | None
    said: list[str]


def play(
    scenarios: Mapping[str, tuple[int, Sequence[Start]]], folder: Path
) -> dict[str, list[End]]:
    """Start all ranks of all scenarios at once (they mostly wait), each scenario's at its port."""
    started = []
    for name, (port, starts) in scenarios.items():
        for i, start in enumerate(starts):
            said = folder / f"{name} {i}"
            said.touch()
            rank = FORKSERVER.Process(target=_main, args=(start, port, said), daemon=True)
            rank.start()
            started.append((name, start, rank, said))
    end, ends = time.monotonic() + LONGEST, {name: list[End]() for name in scenarios}
    for _, start, rank, _ in started:
        if start.before is None:
            rank.join(max(0, end - time.monotonic()))
    for name, _, rank, said in started:
        ends[name].append(End(rank.exitcode, said.read_text().splitlines()))
        rank.kill()
    return ends


def _main(start: Start, port: int, said: Path) -> None:
    descriptor = os.open(said, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ.update(
        RANK=str(start.rank),
        WORLD_SIZE=str(start.world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    sys.argv = [program.PROGRAM, f"run.silent_seconds={SILENT}", *start.settings]
    time.sleep(start.after)
    if start.before:
        start.before()
    program.main()
