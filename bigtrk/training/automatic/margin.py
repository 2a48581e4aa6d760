"""The part of a rank's memory that predictions may fill."""

import math
from dataclasses import dataclass

from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.parallel.host import FILLED

GIB = 2**30
# The part of a rank's memory that a short training may be seen to fill. Recorded peaks were 1 to
# 4 % above the least limit of a control group in which the same ranks trained.
MEASURED = 0.98
# A command line shows thousandths of a GiB.
_STEPS = 1000


@dataclass(frozen=True)
class Limit:
    """The memory of a rank in bytes, and the share of it that predictions may fill."""

    memory: float
    share: float = 1.0

    @property
    def budget(self) -> float:
        """Returns the bytes that predictions may fill, which `budget_gib` writes down exactly."""
        return self.budget_gib * GIB

    @property
    def budget_gib(self) -> float:
        """Returns the same in GiB, rounded down to what a command line shows if it is a share."""
        filled = self.share * self.memory / GIB
        return filled if self.share == 1 else math.floor(_STEPS * filled) / _STEPS

    def holds(self, peak_bytes: float) -> bool:
        """Says whether a run fits whose peak was measured."""
        return peak_bytes <= MEASURED * self.memory

    def enough_gib(self, n_bytes: float) -> float:
        """Returns the least memory in GiB that so many bytes are a permitted share of."""
        filled = math.ceil(_STEPS * n_bytes / GIB) / _STEPS
        return math.ceil(_STEPS * filled / self.share) / _STEPS


def safe_share(machine: MachineConstants) -> float:
    """Returns the share of a rank's memory that may be filled by prediction: nine tenths, or less
    where steps are known to have taken more than predicted.

    A run that is ended for want of memory costs all of its time, and memory that is left unused a
    few percent: the largest excess known counts, not the usual one.
    """
    return min(FILLED, 1 / _largest_excess(machine))


def _largest_excess(machine: MachineConstants) -> float:
    """Returns the largest known ratio of measured to predicted memory; at least 1."""
    errors: list[float] = machine.fit.get("relative_errors", {}).get("memory", [])
    fitted = [1 / (1 + error) for error in errors]
    return float(max([1.0, *fitted, machine.exceeded.get("memory", 1.0)]))
