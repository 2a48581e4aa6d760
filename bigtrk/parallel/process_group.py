"""The world's process group, from the ranks' meeting until the last rank has left.

A meeting takes a bounded time, after which missing ranks are named. Each rank checks in at a store
of rank 0, whose port it gets from the rendezvous, and waits as long as other ranks arrive.

An operation on the store of a stopped process never returns, whatever its timeout (torch 2.13), so
a thread does it. It first tests whether anything listens at the address: otherwise torch prints.
"""

import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]  # not in __all__
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import rendezvous

from bigtrk.errors import RankError, number_of, reason
from bigtrk.parallel.ranks import Ranks, named, publish
from bigtrk.parallel.watchdog import ANSWERS, Beat, Met, Patience, Still, Watchdog, key_of
from bigtrk.process import cores_for_this_thread
from bigtrk.tracing import traced, waiting

LOOK = 0.2  # s, between two looks
AGENT = 10.0  # s until torchrun's agent answers
FIRST, WORLD, COUNT, END = "first", "world", "count", "end"


@contextmanager
def process_group(ranks: Ranks, patience: Patience = Patience()) -> Iterator[None]:  # noqa: B008
    """Holds the world's process group (nccl on accelerators, gloo on CPUs) while the block runs. A
    watchdog watches several ranks from their meeting on. On CPUs, other threads get one core each.
    Raises RankError if the ranks do not meet. Collective.
    """
    on_cuda = ranks.device.type == "cuda"
    with ExitStack() as group:
        if on_cuda:
            torch.cuda.set_device(ranks.device)
        else:
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
            # Not with a GPU: its CPU threads that read and sample use all cores.
            group.enter_context(cores_for_this_thread())
        os.environ.update(publish(ranks))
        store: Store = HashStore()  # takes no port: several runs of one rank may share a host
        if ranks.world_size > 1:
            with traced("meeting"):
                met = meet(ranks, patience.silent)
            group.enter_context(Watchdog(ranks, met, patience))
            store = met.store
        with traced("joining"), waiting():
            backend = "nccl" if on_cuda else "gloo"
            dist.init_process_group(
                backend, store=store, rank=ranks.rank, world_size=ranks.world_size
            )
        group.callback(close_process_group)
        yield
        if ranks.world_size > 1:
            with waiting():
                dist.barrier()


def close_process_group() -> None:
    """Destroys the process group, and leaves its threads nothing to do while the interpreter ends.

    DistributedDataParallel leaks references to the group, so gloo's threads outlive it, and may
    abort the process at its end. Collecting garbage, then waiting a moment, lets them finish.
    """
    gc.collect()
    # DeepSpeed keeps groups of its own, with which the next training of this process would fail.
    deepspeed = sys.modules.get("deepspeed.comm")
    if deepspeed is not None and deepspeed.is_initialized():
        deepspeed.destroy_process_group()
    else:
        dist.destroy_process_group()
    time.sleep(0.1)


def meet(ranks: Ranks, seconds: float) -> Met:
    """Waits for all ranks at MASTER_ADDR and MASTER_PORT. Collective. Raises RankError if no other
    rank arrived for `seconds`, if ranks differ in WORLD_SIZE or have the same RANK or GPU, or if
    another program has the port.
    """
    meeting = _Meeting(ranks, seconds)
    threading.Thread(target=meeting.attend, name="meeting", daemon=True).start()
    still = Still()
    while still.look(meeting.seen) < seconds:
        with suppress(TimeoutError):
            return meeting.met.result(LOOK)
    meeting.over.set()
    try:
        return meeting.met.result(2 * ANSWERS)
    except TimeoutError:
        raise RankError(f"{meeting.wrong} (no answer for {seconds:.0f} s)") from None


def agent_store() -> Store | None:
    """Opens the store of torchrun's agent, which outlives its ranks; None under other launchers.
    Raises DistError if the agent does not answer.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return None
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(*place, is_master=False, timeout=timedelta(seconds=AGENT))


def card_of(ranks: Ranks) -> str:
    """Returns the key of a rank's GPU, its UUID, "" on CPUs: ranks may number GPUs differently."""
    on_cuda = ranks.device.type == "cuda"
    return f"card {torch.cuda.get_device_properties(ranks.device).uuid}" if on_cuda else ""


class _Meeting:
    """One rank's part in the meeting. seen: number of ranks that have arrived. over: set when no
    rank has arrived for too long. wrong: the message if a store operation fails or does not return.
    """

    def __init__(self, ranks: Ranks, seconds: float) -> None:
        self._rank, self._world, self._seconds = ranks.rank, ranks.world_size, seconds
        self._host, self._port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._place = f"{self._host}, port {self._port}"
        self._card = card_of(ranks)
        self.met: Future[Met] = Future()
        self.over = threading.Event()
        self.seen = 0
        self.wrong = (
            f"rank {self._rank} cannot meet the other ranks at {self._place}: another program may "
            f"use the port (give all ranks another MASTER_PORT, or the launcher another "
            f"--master_port), or rank 0 has stopped or runs on another host"
        )

    def attend(self) -> None:
        """Runs the meeting in a thread; the result or error is in `met`."""
        try:
            self.met.set_result(self._attend())
        except dist.DistError as error:
            self.met.set_exception(RankError(f"{self.wrong} ({reason(error)})"))
        except Exception as error:
            self.met.set_exception(error)

    def _attend(self) -> Met:
        if self._rank > 0:
            self._await_listener()
        # World size 1, since otherwise torch's rank 0 would wait here for the others.
        waits = timedelta(seconds=self._seconds)
        opened, _, _ = next(rendezvous("env://", self._rank, 1, timeout=waits))
        # The store of torchrun's agent still holds the keys of ranks before a restart.
        store = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), opened)
        beats, first = self._open(store) if self._rank == 0 else self._find(store)
        self._check_in(beats, first)
        self._await_all(beats)
        # From now on the watchdog ends a run that waits for a lost rank.
        for kept in (store, beats):
            kept.set_timeout(default_pg_timeout)
        return Met(store, beats, first)

    def _await_listener(self) -> None:
        while True:
            try:
                return socket.create_connection((self._host, self._port), LOOK).close()
            except OSError as error:
                if self.over.is_set():
                    raise RankError(self._missing([0], f" ({reason(error)})")) from None
            time.sleep(LOOK)

    def _open(self, store: Store) -> tuple[TCPStore, Beat]:
        """Opens rank 0's store of beats; returns the store and rank 0's own beat."""
        own, waits = Beat.now(0, 0), timedelta(seconds=self._seconds)
        beats = TCPStore(self._host, 0, None, True, waits, wait_for_workers=False)
        beats.set(WORLD, str(self._world))
        told = store.compare_set(FIRST, "", f"{beats.port} {own.model_dump_json()}")
        self._refuse_twin(own, told.partition(b" ")[2])
        return beats, own

    def _find(self, store: Store) -> tuple[TCPStore, Beat]:
        self._until(lambda: store.check([FIRST]), lambda: RankError(self._missing([0])))
        port, _, text = store.get(FIRST).decode().partition(" ")
        first, waits = Beat.model_validate_json(text), timedelta(seconds=self._seconds)
        self.wrong = (
            f"rank 0 ({first.who}) does not answer at {self._host}, port {port}; look at that "
            f"host, and start all ranks again"
        )
        return TCPStore(self._host, int(port), None, False, waits), first

    def _check_in(self, beats: TCPStore, first: Beat) -> None:
        own, world = Beat.now(0, 0), int(beats.get(WORLD))
        if world != self._world:
            raise self._ended(
                beats,
                f"WORLD_SIZE is {world} for rank 0 ({first.who}) and {self._world} for rank "
                f"{self._rank} ({own.who}); start all ranks with the same WORLD_SIZE, "
                f"and each training with a MASTER_PORT of its own",
            )
        self._refuse_twin(own, beats.compare_set(key_of(self._rank), "", own.model_dump_json()))
        if self._card:
            holder = int(beats.compare_set(self._card, "", str(self._rank)))
            if holder != self._rank:
                ranks, cards = (number_of(torch.cuda.device_count(), n) for n in ("rank", "GPU"))
                pair = named(sorted([holder, self._rank]))
                text = f"{pair} have the same GPU; start at most {ranks} on a host of {cards}"
                raise self._ended(beats, text)
        beats.add(COUNT, 1)

    def _refuse_twin(self, own: Beat, there: bytes) -> None:
        twin = Beat.model_validate_json(there)
        if (twin.host, twin.process) != (own.host, own.process):
            raise RankError(
                f"two processes at {self._place} have RANK={self._rank}: {twin.who}, and "
                f"{own.who}; give each a rank of its own, and each job a MASTER_PORT of its own"
            )

    def _await_all(self, beats: TCPStore) -> None:
        def all_there() -> bool:
            self.seen = beats.add(COUNT, 0)
            if beats.check([END]):
                raise self._ended(beats, "")
            return self.seen == self._world

        def absence() -> RankError | None:
            ranks = range(self._world) if self._rank == 0 else ()  # one asks, and tells the others
            absent = [rank for rank in ranks if not beats.check([key_of(rank)])]
            return self._ended(beats, self._missing(absent)) if absent else None

        self._until(all_there, absence)

    def _until(self, look: Callable[[], bool], error: Callable[[], RankError | None]) -> None:
        """Calls `look` until it is true; once the meeting is over, raises the error of `error`."""
        while not look():
            found = error() if self.over.is_set() else None
            if found:
                raise found
            time.sleep(LOOK)

    def _missing(self, ranks: list[int], why: str = "") -> str:
        return (
            f"{named(ranks)} of {self._world} {'are' if len(ranks) > 1 else 'is'} missing at "
            f"{self._place}, where no rank has come for {self._seconds:.0f} s{why}; start all "
            f"ranks with this MASTER_ADDR and MASTER_PORT, or raise run.silent_seconds if some "
            f"take longer to start"
        )

    def _ended(self, beats: TCPStore, text: str) -> RankError:
        """Ends the meeting for all ranks; returns the error that the first rank to end it wrote.
        Rank 0 first waits until the others have read it, since the store ends with rank 0.
        """
        told = beats.compare_set(END, "", text).decode()
        if self._rank == 0:
            time.sleep(ANSWERS)
        return RankError(told)
