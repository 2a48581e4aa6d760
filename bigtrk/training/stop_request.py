"""A request that a run end: it saves after the step that it is in, and exits to be started again.

Clusters ask with SIGTERM (preemption, scancel, the time limit) or with the signal that the job
chose, mostly SIGUSR1 (`sbatch --signal`); some ask one process only. A person asks with Ctrl-C, and
with a second one to end at once. A rank that stopped alone would leave the others waiting, so ranks
agree on it with the step's own reduction.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bigtrk.console import complain
from bigtrk.errors import StoppedError
from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.ranks import Ranks

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# A terminal sends Ctrl-C to all processes of a launch, and the launcher passes it on to them.
_PASSED_ON = 1.0  # s


class StopRequest:
    """A request to end this process: a signal, or the end of its launcher, after which nobody ends
    it.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._signal = ranks, ""
        self._interrupted: float | None = None  # s
        # The shell that started plain python may end first (nohup).
        self._launcher = None if ranks.launcher == "python" else os.getppid()

    @property
    def reason(self) -> str:
        """Says why this process is to end; "" if it is not."""
        if self._signal or self._launcher in (None, os.getppid()):
            return self._signal
        return "its launcher has ended"

    def agreed_reason(self) -> str:
        """Returns the reason of the first rank that has one. Collective."""
        reasons = gather_items(self.reason)
        rank = next(rank for rank, reason in enumerate(reasons) if reason)
        return f"{reasons[rank]} (rank {rank})"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the signals as requests while the block runs.

        After a stop they are ignored: the process is to exit, and once the first rank has,
        launchers send SIGTERM to the others, which would exit with another status.
        """
        after: dict[int, Any] = {n: signal.signal(n, self._take) for n in SIGNALS}
        try:
            yield
        except StoppedError:
            after = dict.fromkeys(SIGNALS, signal.SIG_IGN)
            raise
        finally:
            for number, handler in after.items():
                signal.signal(number, handler)

    def _take(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._interrupt()
        self._signal = signal.Signals(number).name

    def _interrupt(self) -> None:
        """Says what Ctrl-C does, or ends the process if that was said before."""
        now = time.monotonic()
        if self._interrupted is None:
            self._interrupted = now
            if self._ranks.is_first:
                complain("saving after this step; Ctrl-C again ends at once, without saving")
        elif self._launcher is None or now > self._interrupted + _PASSED_ON:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
