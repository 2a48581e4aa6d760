"""Listeners that are told, beside the terminal, which ranks keep others waiting: the run's folder.

They are told in a thread: a disk may not answer, and a watchdog that waits for it ends no run.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from bigtrk.errors import InputError
from bigtrk.parallel.liveness.heartbeat import BEAT, Verdict

# Called with the verdict, None once all ranks go on, and with whether it ends the run.
Told = Callable[[Verdict | None, bool], None]
_listeners: list[Told] = []
_telling: list[threading.Thread] = []


@contextmanager
def listening(listener: Told) -> Iterator[None]:
    """Tells `listener` while the block runs. What it raises of OSError and InputError is no matter
    of the training.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(verdict: Verdict | None, ends: bool = False) -> None:
    """Tells all who listen, unless they have been busy with the last verdict for long."""
    while _telling:
        _telling[-1].join(BEAT)
        if _telling[-1].is_alive():
            return
        _telling.pop()
    thread = threading.Thread(target=_tell, args=(verdict, ends), name="stalls", daemon=True)
    _telling.append(thread)
    thread.start()


def _tell(verdict: Verdict | None, ends: bool) -> None:
    for listener in tuple(_listeners):  # the training may end meanwhile
        with suppress(OSError, InputError):
            listener(verdict, ends)
