"""Signals that ask a searcher to end: SIGTERM, as clusters send it, and Ctrl-C."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bigtrk.console import complain
from bigtrk.errors import StoppedError

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class Asked:
    """Says which signal has asked, if one has."""

    by: str = ""

    def check(self) -> None:
        """Raises StoppedError if a signal has asked."""
        if self.by:
            raise StoppedError(f"{self.by}: stopped; the same command goes on")


@contextmanager
def noting_signals() -> Iterator[Asked]:
    """Notes the first signal while the block runs; the second one ends the process."""
    asked = Asked()

    def take(number: int, _: object) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        asked.by = signal.Signals(number).name
        complain(f"{asked.by}: the trainings save; a second one ends at once")

    before = {one: signal.signal(one, take) for one in SIGNALS}
    try:
        yield asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
