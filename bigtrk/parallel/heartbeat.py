"""Heartbeats: ranks tell each other while they train where they are, and which one has failed."""

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bigtrk.tracing import is_waiting, place

BEAT = 1.0  # s
ANSWERS = 3 * BEAT  # within which a store answers


@dataclass(frozen=True)
class Patience:
    """The seconds for which a rank may say nothing or, before all have met, no other rank may come
    (`silent`), and those for which a rank may be in the same operation (`stalled`).
    """

    silent: float = 30.0
    stalled: float = 300.0


@dataclass
class Still:
    """Counts the seconds for which a value has been the same. A look at it adds one beat at most: a
    process that was stopped itself, such as a suspended job's, has not been looking.
    """

    value: Any = None
    seconds: float = 0.0
    looked: float = field(default_factory=time.monotonic)

    def look(self, value: Any) -> float:
        now = time.monotonic()
        passed = min(now - self.looked, BEAT)
        self.seconds = self.seconds + passed if value == self.value else 0.0
        self.value, self.looked = value, now
        return self.seconds


@dataclass(frozen=True)
class Beat:
    """A rank's `number`-th heartbeat. still: seconds since it began or ended an operation. waits:
    true if it waits for other ranks.
    """

    number: int
    still: float
    place: str
    waits: bool
    host: str
    process: int

    @staticmethod
    def now(number: int, still: float) -> "Beat":
        """Returns this process's beat."""
        return Beat(number, still, place(), is_waiting(), platform.node(), os.getpid())

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str | bytes) -> "Beat":
        return Beat(**json.loads(text))

    @property
    def who(self) -> str:
        return f"process {self.process} on {self.host}"

    def __str__(self) -> str:
        return f"in {self.place or 'no operation'} ({self.who})"


def key_of(rank: int) -> str:
    """Returns the key of a rank's newest beat in the store."""
    return f"rank {rank}"


@dataclass(frozen=True)
class Verdict:
    """The reason why the run must end. stalled: the ranks at fault. silent: their processes, as
    (host, process), where they do not answer. found_by: the rank that found it.
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
    """Makes the verdict on ranks that say nothing, from the last beat of each."""
    said = _listed(silent, f"has been silent for {seconds:.0f} s, last seen")
    processes = tuple((beat.host, beat.process) for beat in silent.values())
    return Verdict(f"{said}. {_summary(others)}", tuple(silent), processes)


def stall(beats: Mapping[int, Beat], seconds: float) -> Verdict:
    """Makes the verdict if ranks answer but none moves: those that do not wait are at fault."""
    busy = {rank: beat for rank, beat in beats.items() if not beat.waits}
    stalled = busy or dict(beats)
    others = {rank: beat for rank, beat in beats.items() if rank not in stalled}
    said = _listed(stalled, f"has not moved for {seconds:.0f} s,")
    return Verdict(f"{said}. {_summary(others)}", tuple(stalled))


def late(beats: Mapping[int, Beat], silent: Mapping[int, Beat], seconds: float) -> Verdict | None:
    """Makes the verdict, before it ends the run, on ranks that keep others waiting: the `silent`
    ones, and those which do not wait and have been in the same operation for `seconds`; None
    where there are none, or nobody waits.
    """
    busy = {
        rank: beat
        for rank, beat in beats.items()
        if rank not in silent and not beat.waits and beat.still >= seconds
    }
    others = {rank: beat for rank, beat in beats.items() if rank not in {**silent, **busy}}
    if not (silent or busy) or not any(beat.waits for beat in others.values()):
        return None
    said = [f"rank {rank} says nothing, last seen {beat}" for rank, beat in silent.items()]
    said += [f"rank {rank} has not moved for {b.still:.0f} s, {b}" for rank, b in busy.items()]
    return Verdict(f"{'; '.join(said)}. {_summary(others)}", (*silent, *busy))


def _listed(beats: Mapping[int, Beat], what: str) -> str:
    return "; ".join(f"rank {rank} {what} {beat}" for rank, beat in beats.items())


def _summary(beats: Mapping[int, Beat]) -> str:
    """Lists ranks by place: there may be hundreds."""
    by_place: dict[str, list[int]] = {}
    for rank, beat in beats.items():
        by_place.setdefault(beat.place, []).append(rank)
    said = [
        f"rank {ranks[0]}{f' and {len(ranks) - 1} more' * (len(ranks) > 1)} in "
        f"{place or 'no operation'}"
        for place, ranks in by_place.items()
    ]
    return f"Others: {'; '.join(said)}" if said else "There are no others"
