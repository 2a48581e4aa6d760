"""Means with errors: over repeats of a run, and of ratios of counts."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

INTERVAL_RULE = (
    "Binomial interval: Wilson's score interval (1927) at one standard deviation (68.3 %), of the "
    "mean ratio over the edges of one run's validation events, which count as independent."
)


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` repeats and its standard error, None for a single one."""

    mean: float
    error: float | None
    n: int

    def times(self, factor: float) -> "Estimate":
        return Estimate(
            self.mean * factor, None if self.error is None else self.error * abs(factor), self.n
        )


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Returns mean and standard error of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
    return Estimate(fmean(known), error, len(known))


def ratio(above: Estimate, below: Estimate) -> Estimate:
    """Divides two independent means, relative errors added in quadrature; one without an error
    leaves the ratio without one. `below` is not 0.
    """
    value = above.mean / below.mean
    error = None
    if above.error is not None and below.error is not None:
        error = math.hypot(above.error / below.mean, value * below.error / below.mean)
    return Estimate(value, error, min(above.n, below.n))


def wilson(share: float, n: int, z: float = 1.0) -> tuple[float, float]:
    """Returns Wilson's score interval of a share of `n`, `z` standard deviations to either side.

    E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209; Brown, Cai and DasGupta, Statist. Sci. 16
    (2001) 101 recommend it: unlike the normal interval it neither leaves [0, 1] nor vanishes at its
    ends. `n` is at least 1.
    """
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
