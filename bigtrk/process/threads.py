"""Threads beside the one that computes, and their cores."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def cores_for_this_thread() -> Iterator[None]:
    """Lets threads that start while the block runs use one core, and this one as many as before.

    Each thread whose operations are split over cores has a team of OpenMP's threads. Once those of
    all teams are more than the cores, OpenMP's (libgomp) go to sleep as soon as they wait, in every
    team, for as long as the teams exist: with two cores, steps on 4,700 edges took 0.14 s instead
    of 0.08 s while a thread read the next ones, and steps of 0.50 s took 0.77 s from when gloo's
    threads had copied parameters of FSDP2 or ZeRO-3.
    """
    cores = torch.get_num_threads()
    torch.set_num_threads(cores)
    torch.get_num_threads()  # now, since a thread takes the number of the process when first asked
    with ThreadPoolExecutor(1) as other:
        other.submit(torch.set_num_threads, 1).result()
    try:
        yield
    finally:
        torch.set_num_threads(cores)


class Prefetcher:
    """A thread that makes one thing while the one before it is used, for as long as this exists.

    Each thread may have a heap of its own (glibc's arenas, eight for each core), which keeps what
    was freed in it after the thread has ended. With a new thread for each epoch's sampler, ranks of
    DeepSpeed took 8 MiB more with every epoch of ShaDow, until each of 16 heaps had that.
    """

    def __init__(self) -> None:
        self._own: list[int] = []
        self._thread = ThreadPoolExecutor(1, initializer=_note_thread, initargs=(self._own,))

    def each(self, made_by: Iterable[Callable[[], T]]) -> Iterator[Callable[[], T]]:
        """Yields, for each call, a function that waits for it and returns or raises what it did.
        Each is to be called once, before the next is asked for: here nothing keeps its result. An
        end waits for what is being made. A call must not itself take from this.
        """
        calls: list[Future[T]] = []

        def take() -> T:
            return calls.pop(0).result()

        try:
            for make in made_by:
                calls.append(self._thread.submit(make))
                if len(calls) > 1:
                    yield take
            if calls:
                yield take
        finally:
            begun = [call for call in calls if not call.cancel()]
            # The thread itself ends what was left unfinished, in a cycle, if it collects garbage.
            if threading.get_ident() not in self._own:
                wait(begun)


def _note_thread(known: list[int]) -> None:
    known.append(threading.get_ident())
