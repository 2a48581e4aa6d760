"""The watchdog ends a run in which a rank stalls, and names that rank and its last operation.

Each rank writes a beat into a store every second and reads the beat of the next rank, so the work
does not grow with the number of ranks. The store is rank 0's. A rank that finds the next one silent
reads all beats, prints the verdict and leaves it in the store for the other ranks, which then end,
too; rank 0 does the same if no rank moves. Main threads are in collectives that nothing interrupts,
so processes just exit.
"""

import faulthandler
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch.distributed as dist
from pydantic import BaseModel
from torch._C import _distributed_c10d
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # not in __all__

from bigtrk.console import complain
from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError, StoppedError
from bigtrk.parallel.ranks import Ranks
from bigtrk.tracing import is_waiting, moves, place

BEAT = 1.0  # s
ANSWERS = 3 * BEAT  # time in which a store answers
LATER = 10 * BEAT  # by then all ranks have noticed
NOTED = 1 / 3  # share of the patience with a silent rank after which listeners are notified
BETWEEN_NOTES = 4  # looks between two notes; a living rank has answered by then
VERDICT, LEFT = "verdict", "left"
STALLED = 1  # exit status
LONGEST = 2.0  # s for a flight record; a device that hangs may never return it
_c10d: Any = _distributed_c10d  # its type stubs lack the flight recorder


@dataclass(frozen=True)
class Patience:
    """The limits of patience with ranks, in seconds. silent: without a beat or, before all have
    met, without another rank arriving. stalled: with a rank that stays in the same operation.
    """

    silent: float = 30.0
    stalled: float = 300.0


@dataclass
class Still:
    """Counts the seconds for which a value stays the same. A look adds at most one beat: a process
    that was itself stopped, as in a suspended job, was not looking meanwhile.
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


class Beat(BaseModel, frozen=True):
    """A rank's `number`-th heartbeat. still: seconds since the rank began or ended an operation.
    waits: true if it waits for other ranks.
    """

    number: int
    still: float
    place: str
    waits: bool
    host: str
    process: int

    @staticmethod
    def now(number: int, still: float) -> "Beat":
        """Makes this process's beat."""
        return Beat(
            number=number,
            still=still,
            place=place(),
            waits=is_waiting(),
            host=platform.node(),
            process=os.getpid(),
        )

    @property
    def who(self) -> str:
        return f"process {self.process} on {self.host}"

    def __str__(self) -> str:
        return f"in {self.place or 'no operation'} ({self.who})"


def key_of(rank: int) -> str:
    """Returns the store's key for the newest beat of `rank`."""
    return f"rank {rank}"


class Verdict(BaseModel, frozen=True):
    """The reason why the run must end. stalled: the ranks at fault. silent: the processes (host,
    number) of ranks that do not answer. found_by: the rank that found it.
    """

    text: str
    stalled: tuple[int, ...]
    silent: tuple[tuple[str, int], ...] = ()
    found_by: int = 0


# Called with the verdict (None once all ranks go on) and with whether it ends the run.
Told = Callable[[Verdict | None, bool], None]
# A process has one watchdog, which knows no runs: its listeners, and folders of records.
_listeners: list[Told] = []
_telling: list[threading.Thread] = []
_folders: list[Path] = []


def silence(silent: Mapping[int, Beat], others: Mapping[int, Beat], seconds: float) -> Verdict:
    """Makes the verdict on silent ranks, from the last beat of each."""
    said = _listed(silent, f"has been silent for {seconds:.0f} s, last seen")
    processes = tuple((beat.host, beat.process) for beat in silent.values())
    return Verdict(text=f"{said}. {_summary(others)}", stalled=tuple(silent), silent=processes)


def stall(beats: Mapping[int, Beat], seconds: float) -> Verdict:
    """Makes the verdict if all ranks answer but none moves; ranks that do not wait are at fault."""
    stalled = {rank: beat for rank, beat in beats.items() if not beat.waits} or beats
    others = {rank: beat for rank, beat in beats.items() if rank not in stalled}
    said = _listed(stalled, f"has not moved for {seconds:.0f} s,")
    return Verdict(text=f"{said}. {_summary(others)}", stalled=tuple(stalled))


def late(beats: Mapping[int, Beat], silent: Mapping[int, Beat], seconds: float) -> Verdict | None:
    """Makes an early verdict on ranks that keep others waiting: the `silent` ranks, and ranks that
    stay in one operation for `seconds` without waiting. None if there are none, or nobody waits.
    """
    answer = {rank: beat for rank, beat in beats.items() if rank not in silent}
    busy = {rank: b for rank, b in answer.items() if not b.waits and b.still >= seconds}
    others = {rank: beat for rank, beat in answer.items() if rank not in busy}
    if not (silent or busy) or not any(beat.waits for beat in others.values()):
        return None
    said = [f"rank {rank} says nothing, last seen {beat}" for rank, beat in silent.items()]
    said += [f"rank {rank} has not moved for {b.still:.0f} s, {b}" for rank, b in busy.items()]
    return Verdict(text=f"{'; '.join(said)}. {_summary(others)}", stalled=(*silent, *busy))


def _listed(beats: Mapping[int, Beat], what: str) -> str:
    return "; ".join(f"rank {rank} {what} {beat}" for rank, beat in beats.items())


def _summary(beats: Mapping[int, Beat]) -> str:
    """Lists ranks by place, since there may be hundreds."""
    by_place: dict[str, list[int]] = {}
    for rank, beat in beats.items():
        by_place.setdefault(beat.place, []).append(rank)
    said = [
        f"rank {ranks[0]}{f' and {len(ranks) - 1} more' * (len(ranks) > 1)} in "
        f"{place or 'no operation'}"
        for place, ranks in by_place.items()
    ]
    return f"Others: {'; '.join(said)}" if said else "There are no others"


@dataclass(frozen=True)
class Met:
    """The result of a meeting. store: the rendezvous's, for the process group. beats: rank 0's own
    store, to which every rank has written a first beat. first: rank 0's first beat.
    """

    store: Store
    beats: TCPStore
    first: Beat


class Watchdog:
    """Watches several ranks inside its with block, after they have `met`. Leaving the block is
    collective, except for a rank that alone met an error.

    A rank without a beat for `patience.silent` ends the run; so does a rank that stays in the same
    operation for `patience.stalled`. A rank judges others only after it has waited for as long.
    """

    def __init__(self, ranks: Ranks, met: Met, patience: Patience) -> None:
        self._rank, self._world = ranks.rank, ranks.world_size
        self._store, self._first = met.beats, met.first
        self._silent, self._stalled = patience.silent, patience.stalled
        self._next = (self._rank + 1) % self._world
        self._left = threading.Event()
        self._own, self._rounds, self._voice = Still(), Still(), Still()
        self._round = 0
        self._seen: Beat | None = None
        self._verdict: Verdict | None = None
        self._lost, self._agreed = False, False
        self._noted, self._last = False, dict[int, Beat]()
        self._threads = [
            threading.Thread(target=work, name=f"watchdog {work.__name__}", daemon=True)
            for work in (self._beat, self._judge)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._agreed = kind is None or issubclass(kind, InputError | StoppedError)
        self._left.set()
        # A thread that is in the store while the interpreter ends would abort the process.
        for thread in self._threads:
            thread.join(LATER)

    def _beat(self) -> None:
        """Writes and reads beats in a thread of its own, since a stopped store blocks it."""
        try:
            while not self._left.wait(BEAT):
                self._round += 1
                own = Beat.now(self._round, self._own.seconds)
                self._store.set(key_of(self._rank), own.model_dump_json())
                self._seen = Beat.model_validate_json(self._store.get(key_of(self._next)))
                if self._store.check([VERDICT]):
                    self._verdict = Verdict.model_validate_json(self._store.get(VERDICT))
            self._leave()
        except RuntimeError:  # rank 0 has ended
            self._lost = True

    def _leave(self) -> None:
        """Keeps rank 0's store until the other ranks have looked at it for the last time."""
        left, end = self._store.add(LEFT, 1), time.monotonic() + ANSWERS
        if self._rank == 0 and self._agreed:
            while left < self._world and time.monotonic() < end:
                time.sleep(BEAT / 20)
                left = self._store.add(LEFT, 0)

    def _judge(self) -> None:
        looks = 0
        while not self._left.wait(BEAT):
            looks += 1
            try:
                verdict = self._verdict or self._find()
                if self._rank == 0 and verdict is None and looks % BETWEEN_NOTES == 0:
                    self._note()
            except RuntimeError:  # rank 0 ends in this moment
                continue
            if verdict and not self._left.is_set():
                self._end(verdict)

    def _find(self) -> Verdict | None:
        """Returns the verdict, if there is one, after printing it and sending it to the others."""
        own, rounds = self._own.look(moves()), self._rounds.look(self._round)
        voice = self._voice.look(self._seen and self._seen.number)
        if rounds >= BEAT:  # asking a store that has stopped would keep this thread waiting, too
            return self._store_is_silent() if min(own, rounds) >= self._silent else None
        if min(own, voice) >= self._silent:
            return self._silence()
        if self._rank == 0 and own >= self._stalled:
            beats = self._all()  # one that moves may keep the others waiting
            if min(beat.still for beat in beats.values()) >= self._stalled - ANSWERS:
                return self._tell(stall(beats, self._stalled))
        return None

    def _note(self) -> None:
        """Notifies listeners of ranks that keep others waiting, and when these go on again."""
        after = NOTED * self._silent
        beats = self._all() if self._own.seconds >= after else {}
        found = late(beats, _silent(self._last, beats), after)
        self._last = beats
        if found is not None or self._noted:
            tell(found)
        self._noted = found is not None

    def _store_is_silent(self) -> Verdict:
        """Makes the verdict on rank 0. No rank can be notified: each finds out itself, and only the
        rank that hears rank 0's beats prints it.
        """
        last = self._seen if self._next == 0 and self._seen else self._first
        verdict = silence(
            {0: last}, {self._rank: Beat.now(self._round, self._own.seconds)}, self._silent
        )
        if self._next == 0:
            _print(verdict)
        else:
            time.sleep(LATER)
        return verdict.model_copy(update={"silent": ()}) if self._lost else verdict

    def _silence(self) -> Verdict | None:
        """Sends the verdict on all silent ranks; returns None if the next rank answers again."""
        before = self._all()
        self._left.wait(ANSWERS)
        after = self._all()
        silent = _silent(before, after)
        if self._next not in silent:
            return None
        others = {rank: beat for rank, beat in after.items() if rank not in silent}
        return self._tell(silence(silent, others, self._silent))

    def _all(self) -> dict[int, Beat]:
        found = self._store.multi_get([key_of(rank) for rank in range(self._world)])
        return {rank: Beat.model_validate_json(beat) for rank, beat in enumerate(found)}

    def _tell(self, verdict: Verdict) -> Verdict:
        """Sends the others the verdict; returns the first verdict sent, which its sender prints."""
        found = verdict.model_copy(update={"found_by": self._rank}).model_dump_json()
        told = Verdict.model_validate_json(self._store.compare_set(VERDICT, "", found))
        if told.found_by == self._rank:
            _print(verdict)
        return told

    def _end(self, verdict: Verdict) -> None:
        if self._rank in verdict.stalled:
            faulthandler.dump_traceback(all_threads=True)
        write_record(self._rank)
        # The first to exit makes launchers end the others, which may still have something to print.
        time.sleep(ANSWERS)
        for host, process in verdict.silent:
            if host == platform.node() and process != os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)  # a launcher would wait for it
        os._exit(STALLED)


def _silent(before: Mapping[int, Beat], after: Mapping[int, Beat]) -> dict[int, Beat]:
    """Returns the last beats of ranks that gave no new beat between two looks."""
    return {rank: b for rank, b in after.items() if rank in before and b == before[rank]}


def _print(verdict: Verdict) -> None:
    then = "Check that rank's host, then continue with 'bigtrk resume RUN'"
    said = f"stalled: {verdict.text}. {then}"
    if _folders:
        said += f" (what the other ranks were doing: torchfrtrace {_folders[-1]})"
    complain(f"bigtrk: error: {said}")
    tell(verdict, ends=True)


@contextmanager
def listening(listener: Told) -> Iterator[None]:
    """Notifies `listener` of ranks that stall while the block runs. An OSError or InputError from
    `listener` does not reach the training.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(verdict: Verdict | None, ends: bool = False) -> None:
    """Notifies all listeners, unless they are still busy with the last verdict. They run in a
    thread: a watchdog that waited for a slow disk would end no run.
    """
    while _telling:
        _telling[-1].join(BEAT)
        if _telling[-1].is_alive():
            return
        _telling.pop()

    def call() -> None:
        for listener in tuple(_listeners):  # the training may end meanwhile
            with suppress(OSError, InputError):
                listener(verdict, ends)

    thread = threading.Thread(target=call, name="stalls", daemon=True)
    _telling.append(thread)
    thread.start()


@contextmanager
def records_in(folder: Path) -> Iterator[None]:
    """Makes ranks that stall inside the block write flight records into `folder`, one file each:
    which collectives they began lately, and which of these have ended.
    """
    _folders.append(folder)
    try:
        yield
    finally:
        _folders.remove(folder)


def write_record(rank: int) -> None:
    """Writes this rank's flight record, if a folder is set and torch gives the record soon."""
    if not _folders:
        return
    path = _folders[-1] / f"rank{rank}"  # torchfrtrace reads the number at the end

    def write() -> None:
        over_nccl = dist.is_initialized() and dist.get_backend() == "nccl"
        dump = _c10d._dump_nccl_trace if over_nccl else _c10d._dump_fr_trace
        record: bytes = dump(includeCollectives=True, includeStackTraces=True, onlyActive=False)
        write_atomically(path, lambda file: file.write_bytes(record))

    thread = threading.Thread(target=write, daemon=True)  # it prints why it fails
    thread.start()
    thread.join(LONGEST)
