"""The watchdog ends a run in which a rank stalls, and says which one and where it was last.

Each rank writes a beat into a store every second and reads that of the next rank, so the work does
not grow with the number of ranks. The store is rank 0's. A rank that finds the next one silent
reads all beats, prints the verdict and leaves it in the store for the others, which end, too; so
does rank 0 if no rank moves. Main threads are in collectives that nothing interrupts, so processes
just exit.
"""

import faulthandler
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # not in __all__

from bigtrk.console import complain
from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError, StoppedError
from bigtrk.parallel.heartbeat import (
    ANSWERS,
    BEAT,
    Beat,
    Patience,
    Still,
    Verdict,
    key_of,
    late,
    silence,
    stall,
)
from bigtrk.parallel.ranks import Ranks
from bigtrk.tracing import moves

LATER = 10 * BEAT  # by then all ranks have noticed
NOTED = 1 / 3  # of the patience with a silent rank, after which whoever watches the run is told
BETWEEN_NOTES = 4  # looks, between which a rank that lives has answered
VERDICT, LEFT = "verdict", "left"
STALLED = 1  # exit status
LONGEST = 2.0  # s; asking a device that hangs may not return
# Called with the verdict, None once all ranks go on, and with whether it ends the run.
Told = Callable[[Verdict | None, bool], None]
_c10d: Any = _distributed_c10d  # whose stubs lack the recorder
# A process has one watchdog, which knows no runs: those who are told, and folders of records.
_listeners: list[Told] = []
_telling: list[threading.Thread] = []
_folders: list[Path] = []


@dataclass(frozen=True)
class Met:
    """The outcome of a meeting. store: the rendezvous's, for the process group. beats: rank 0's own
    store, in which every rank has checked in with a first beat. first: the first beat of rank 0.
    """

    store: Store
    beats: TCPStore
    first: Beat


class Watchdog:
    """Watches several ranks while it is entered, after they have `met`. Leaving it is collective,
    except for a rank that alone met an error.

    A rank that says nothing ends the run after `patience.silent`, one that stays in the same
    operation after `patience.stalled`. In either case the rank that looks must not have moved for
    as long: it waits.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._agreed = kind is None or issubclass(kind, InputError | StoppedError)
        self._left.set()
        # A thread that is in the store while the interpreter ends would abort the process.
        for thread in self._threads:
            thread.join(LATER)

    def _beat(self) -> None:
        """Runs in a thread, which a stopped store keeps waiting."""
        try:
            while not self._left.wait(BEAT):
                self._round += 1
                own = Beat.now(self._round, self._own.seconds)
                self._store.set(key_of(self._rank), own.encode())
                self._seen = Beat.decode(self._store.get(key_of(self._next)))
                if self._store.check([VERDICT]):
                    self._verdict = Verdict.decode(self._store.get(VERDICT))
            self._leave()
        except RuntimeError:  # rank 0 has ended
            self._lost = True

    def _leave(self) -> None:
        """Keeps rank 0's store until the others have looked at it for the last time."""
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
        """Returns the verdict, if there is one, after printing it and telling the others."""
        own, rounds = self._own.look(moves()), self._rounds.look(self._round)
        voice = self._voice.look(self._seen and self._seen.number)
        if rounds >= BEAT:  # asking a store that has stopped would keep this thread waiting, too
            return self._store_is_silent() if min(own, rounds) >= self._silent else None
        if min(own, voice) >= self._silent:
            return self._tell(self._silence())
        if self._rank == 0 and own >= self._stalled:
            return self._tell(self._stall())
        return None

    def _note(self) -> None:
        """Names to listeners the ranks that keep others waiting, and says when none does."""
        after = NOTED * self._silent
        beats = self._all() if self._own.seconds >= after else {}
        last, self._last = self._last, beats
        silent = {
            rank: beat
            for rank, beat in beats.items()
            if rank in last and beat.number == last[rank].number
        }
        found = late(beats, silent, after)
        if found is not None or self._noted:
            tell(found)
        self._noted = found is not None

    def _store_is_silent(self) -> Verdict:
        """Makes the verdict on rank 0. Nobody can be told: all find out, and only the rank that
        hears rank 0's beats prints it.
        """
        last = self._seen if self._next == 0 and self._seen else self._first
        verdict = silence(
            {0: last}, {self._rank: Beat.now(self._round, self._own.seconds)}, self._silent
        )
        if self._next == 0:
            _print(verdict)
        else:
            time.sleep(LATER)
        return replace(verdict, silent=()) if self._lost else verdict

    def _silence(self) -> Verdict | None:
        """Makes the verdict on all ranks that are silent now; None if the next one speaks again."""
        before = self._all()
        self._left.wait(ANSWERS)
        after = self._all()
        silent = {rank: beat for rank, beat in after.items() if beat.number == before[rank].number}
        others = {rank: beat for rank, beat in after.items() if rank not in silent}
        return silence(silent, others, self._silent) if self._next in silent else None

    def _stall(self) -> Verdict | None:
        """Makes the verdict if no rank has moved: one that moves may keep the others waiting."""
        beats = self._all()
        least = min(beat.still for beat in beats.values())
        return stall(beats, self._stalled) if least >= self._stalled - ANSWERS else None

    def _all(self) -> dict[int, Beat]:
        found = self._store.multi_get([key_of(rank) for rank in range(self._world)])
        return {rank: Beat.decode(beat) for rank, beat in enumerate(found)}

    def _tell(self, verdict: Verdict | None) -> Verdict | None:
        """Sends the others the verdict; the first rank to do so prints it."""
        if verdict is None:
            return None
        found = replace(verdict, found_by=self._rank)
        told = Verdict.decode(self._store.compare_set(VERDICT, "", found.encode()))
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


def _print(verdict: Verdict) -> None:
    said = f"stalled: {verdict.text}. Look at that host, and resume the run"
    if _folders:
        said += f" (collectives of the ranks that answer: torchfrtrace {_folders[-1]})"
    complain(f"bigtrk: error: {said}")
    tell(verdict, ends=True)


@contextmanager
def listening(listener: Told) -> Iterator[None]:
    """Notifies `listener` of ranks that stall while the block runs. Its OSError and InputError do
    not end the training.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(verdict: Verdict | None, ends: bool = False) -> None:
    """Notifies all listeners, unless they have been busy with the last verdict for long. A thread
    does so: a disk may not answer, and a watchdog that waits for it ends no run.
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
    """Has ranks that stall inside the block leave their flight records in `folder`, a file each:
    the collectives that they began lately, and which of these have ended.
    """
    _folders.append(folder)
    try:
        yield
    finally:
        _folders.remove(folder)


def write_record(rank: int) -> None:
    """Writes this rank's flight record, if there is a place for it and it can be had soon."""
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
