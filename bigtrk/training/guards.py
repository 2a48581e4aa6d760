"""Guards of a training: loss spikes, signals to stop, lack of memory.

A loss is a spike if it exceeds median + `training.spike_threshold` x MAD of the last losses, where
MAD is their median absolute deviation. Unlike mean and standard deviation, median and MAD do not
follow single outliers.

Clusters ask a run to stop by SIGTERM or SIGUSR1, sometimes sent to one process only; a person uses
Ctrl-C. The step's own reduction shares the request, so that no rank is left waiting.
"""

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from types import FrameType
from typing import Annotated, Any

import torch
from pydantic import Field

from bigtrk.config import Count
from bigtrk.console import complain
from bigtrk.errors import InputError, RankError, StoppedError, reason
from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.ranks import Ranks
from bigtrk.tracing import place_of

WINDOW = 50  # the number of last losses that are kept
FEWEST = 10  # the number of losses known before a step can be a spike
# The MAD counts as at least this fraction of the median: of nearly equal losses it is almost 0.
LEAST_SPREAD = 0.02
MOST_IN_A_ROW = 10


@dataclass(frozen=True)
class LossHistory:
    """The last losses that were no spikes, and the number of spikes since the last of them."""

    losses: Annotated[tuple[float, ...], Field(max_length=WINDOW)] = ()
    spikes_since: Count = 0

    def limit(self, threshold: float) -> float:
        """Returns the loss above which a step is a spike; infinity if too few are known."""
        if len(self.losses) < FEWEST:
            return math.inf
        middle = median(self.losses)
        spread = median(abs(loss - middle) for loss in self.losses)
        return middle + threshold * max(spread, LEAST_SPREAD * middle)

    def after(self, loss: float, spike: bool) -> "LossHistory":
        """Returns the history after a step; it keeps no spike's loss, to keep the limit low."""
        if spike:
            return LossHistory(self.losses, self.spikes_since + 1)
        return LossHistory((*self.losses, loss)[-WINDOW:])


def check_spikes(number: int) -> None:
    """Raises InputError for `number` spikes in a row if that is too many to leave out."""
    if number >= MOST_IN_A_ROW:
        raise InputError(
            f"the loss spiked in {number} steps in a row; lower optimizer.lr, set "
            f"optimizer.gradient_clipping or raise training.spike_threshold, by 'bigtrk resume RUN "
            f"optimizer.lr=VALUE' or in a new run"
        )


SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# Within this time, a second SIGINT may be the same Ctrl-C, passed on by the launcher.
_PASSED_ON = 1.0  # s


class StopRequest:
    """A request to end this process, made by a signal or by the end of its launcher."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._signal = ranks, ""
        self._interrupted: float | None = None  # s
        # The shell that started plain python may end first (nohup).
        self._launcher = None if ranks.launcher == "python" else os.getppid()

    @property
    def reason(self) -> str:
        """Returns why this process must end, such as "SIGTERM"; "" if it need not."""
        if self._signal or self._launcher in (None, os.getppid()):
            return self._signal
        return "its launcher has ended"

    def agreed_reason(self) -> str:
        """Returns the reason of the first rank that has one, and names the rank. Collective."""
        reasons = gather_items(self.reason)
        rank = next(rank for rank, reason in enumerate(reasons) if reason)
        return f"{reasons[rank]} (rank {rank})"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes signals as requests while the block runs. After a stop they are ignored, since
        launchers send SIGTERM to the other ranks once the first one has ended.
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
        """Explains what a second Ctrl-C does; the second Ctrl-C ends the process."""
        now = time.monotonic()
        if self._interrupted is None:
            self._interrupted = now
            if self._ranks.is_first:
                complain("saving after this step; Ctrl-C again ends at once, without saving")
        elif self._launcher is None or now > self._interrupted + _PASSED_ON:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def report_out_of_memory(
    who: str, remedy: str, kind: type[InputError] = RankError
) -> Iterator[None]:
    """Raises an InputError of class `kind` for an allocator's error in the block. It names who ran
    out of memory (`who`, such as a rank), where, and the remedy.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        known = isinstance(error, MemoryError | torch.OutOfMemoryError)
        # torch has no exception of its own for host memory that cannot be allocated.
        of_host = ("can't allocate memory", "not enough memory")
        if not known and not any(words in str(error) for words in of_host):
            raise
        where = f" in '{place}'" if (place := place_of(error)) else ""
        raise kind(f"{who} ran out of memory{where} ({reason(error)}); {remedy}") from None
