"""What ranks tell each other while they train: where they are, and what is wrong with one."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from bigtrk.tracing import is_waiting, place


@dataclass(frozen=True)
class Beat:
    """A rank's `number`-th word. still: seconds since it began or ended an operation. waits: for
    other ranks.
    """

    number: int
    still: float
    place: str
    waits: bool
    host: str
    process: int

    @staticmethod
    def now(number: int, still: float) -> "Beat":
        """This process's."""
        return Beat(number, still, place(), is_waiting(), platform.node(), os.getpid())

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str | bytes) -> "Beat":
        return Beat(**json.loads(text))

    def __str__(self) -> str:
        return f"in {self.place or 'no operation'} (process {self.process} on {self.host})"


@dataclass(frozen=True)
class Verdict:
    """Why the run must end. stalled: the ranks at fault. silent: their processes, as (host,
    process), where they do not answer. found_by: the rank that says so.
    """

    text: str
    stalled: tuple[int, ...]
    silent: tuple[tuple[str, int], ...] = ()
    found_by: int = 0

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str | bytes) -> "Verdict":
        content = json.loads(text)
        silent = tuple((host, process) for host, process in content["silent"])
        return Verdict(**{**content, "stalled": tuple(content["stalled"]), "silent": silent})


def silence(silent: Mapping[int, Beat], others: Mapping[int, Beat], seconds: float) -> Verdict:
    """Of ranks that say nothing: last words, by rank."""
    said = _listed(silent, f"has been silent for {seconds:.0f} s, last seen")
    processes = tuple((beat.host, beat.process) for beat in silent.values())
    return Verdict(f"{said}. {_summary(others)}", tuple(silent), processes)


def stall(beats: Mapping[int, Beat], seconds: float) -> Verdict:
    """Of ranks that answer, while none gets on: those are at fault that do not wait for others."""
    busy = {rank: beat for rank, beat in beats.items() if not beat.waits}
    stalled = busy or dict(beats)
    others = {rank: beat for rank, beat in beats.items() if rank not in stalled}
    said = _listed(stalled, f"has not moved for {seconds:.0f} s,")
    return Verdict(f"{said}. {_summary(others)}", tuple(stalled))


def _listed(beats: Mapping[int, Beat], what: str) -> str:
    return "; ".join(f"rank {rank} {what} {beat}" for rank, beat in beats.items())


def _summary(beats: Mapping[int, Beat]) -> str:
    """Ranks by place: there may be hundreds."""
    by_place: dict[str, list[int]] = {}
    for rank, beat in beats.items():
        by_place.setdefault(beat.place, []).append(rank)
    said = [
        f"rank {ranks[0]}{f' and {len(ranks) - 1} more' * (len(ranks) > 1)} in "
        f"{place or 'no operation'}"
        for place, ranks in by_place.items()
    ]
    return f"Others: {'; '.join(said)}" if said else "There are no others"
