"""Tells how fast this host is now, beside what a calibration of it found."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.planning.calibration.fitting import Sample
from bigtrk.planning.calibration.warmup import measure_apart
from bigtrk.planning.calibration.warmup_cases import CROWD, LEAST, Case

# One of each model, and a pass of few rows: 7 s on one rank, 11 s on two, of two cores.
CASES = (CROWD[0], CROWD[3], CROWD[4], LEAST[0])
_STEPS = 3  # of those that take tenths of a second


def pace(ranks: int, constants: MachineConstants) -> float:
    """Returns how many times as long as in the calibration steps take now, by the median of some
    that it measured: of one rank, or of as many together as it measured.
    """
    together = 1 if ranks == 1 else constants.ranks_together
    cases = [replace(case, steps=min(case.steps, _STEPS)) for case in CASES[:-1]]
    now = measure_apart([*cases, CASES[-1]], together).samples
    return longer(now, calibrated(together, constants))


def calibrated(ranks: int, constants: MachineConstants) -> list[float]:
    """Returns the seconds that the calibration found of the cases on so many ranks."""
    samples = {
        Case(**one["case"]): one["seconds"]
        for one in constants.fit["samples"]
        if one["ranks"] == ranks
    }
    return [samples[case] for case in CASES]


def longer(now: Sequence[Sample], before: Sequence[float]) -> float:
    """Returns the median ratio of the seconds of samples to those before."""
    return median(one.seconds / then for one, then in zip(now, before, strict=True))
