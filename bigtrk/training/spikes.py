"""The loss-spike guard, which finds the losses that are too high to learn from.

A loss is a spike if it exceeds median + `training.spike_threshold` x MAD of the last losses, MAD
being their median absolute deviation; neither follows single outliers, as a mean and a standard
deviation would.
"""

import math
from dataclasses import dataclass
from statistics import median
from typing import Annotated

from pydantic import Field

from bigtrk.config import Count
from bigtrk.errors import InputError

WINDOW = 50  # losses that are remembered
FEWEST = 10  # losses known before any is judged
# Losses that hardly vary have next to no MAD: it counts as this fraction of the median at least.
LEAST_SPREAD = 0.02
MOST_IN_A_ROW = 10


@dataclass(frozen=True)
class LossHistory:
    """The last losses that were no spikes, and the number of spikes since."""

    losses: Annotated[tuple[float, ...], Field(max_length=WINDOW)] = ()
    spikes_since: Count = 0

    def limit(self, threshold: float) -> float:
        """Returns the highest loss that is no spike; infinite while too few are known."""
        if len(self.losses) < FEWEST:
            return math.inf
        middle = median(self.losses)
        spread = median(abs(loss - middle) for loss in self.losses)
        return middle + threshold * max(spread, LEAST_SPREAD * middle)

    def after(self, loss: float, spike: bool) -> "LossHistory":
        """Returns the history after a step, without spikes, which would raise the limit."""
        if spike:
            return LossHistory(self.losses, self.spikes_since + 1)
        return LossHistory((*self.losses, loss)[-WINDOW:])


def check_spikes(number: int, most: int = MOST_IN_A_ROW) -> None:
    """Refuses too many spikes in a row: leaving steps out does not mend such a training.

    Raises:
        InputError: there were too many.
    """
    if number >= most:
        raise InputError(
            f"{number} loss spikes are too many: lower optimizer.lr, set "
            f"optimizer.gradient_clipping or raise training.spike_threshold, and resume from the "
            f"last checkpoint"
        )
