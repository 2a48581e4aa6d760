"""The growth, with a training's steps, of what was sampled during it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bigtrk.errors import InputError

WINDOWS = 20
ERRORS = 3  # standard errors that a slope must exceed


@dataclass(frozen=True)
class Trend:
    """A series over `steps` steps: its range, its mean, its slope per step, and the standard error
    of the slope.
    """

    low: float
    high: float
    level: float
    slope: float
    error: float
    steps: int

    @property
    def growth(self) -> float:
        """Returns the growth from the first to the last step."""
        return self.slope * self.steps

    def grows(self, least: float) -> bool:
        """Says whether it grows by more than `least` in all, and by more than chance explains."""
        return self.growth > least and self.slope > ERRORS * self.error


def trend(steps: Sequence[int], values: Sequence[float]) -> Trend:
    """Fits least squares over the means of 20 windows, each of as many samples.

    Samples that follow each other are alike; taken for independent ones they would make the error
    too small.

    Raises:
        InputError: there are fewer samples than windows.
    """
    if len(values) < WINDOWS:
        raise InputError(
            f"{len(values)} samples are too few to tell growth from chance; train more --steps"
        )
    x, y = (
        np.array([window.mean() for window in np.array_split(np.array(series, float), WINDOWS)])
        for series in (steps, values)
    )
    x, y = x - x.mean(), y - y.mean()
    slope = x @ y / (x @ x)
    residuals = y - slope * x
    return Trend(
        low=min(values),
        high=max(values),
        level=float(np.mean(values)),
        slope=float(slope),
        error=float(np.sqrt(residuals @ residuals / ((WINDOWS - 2) * (x @ x)))),
        steps=steps[-1] - steps[0],
    )
