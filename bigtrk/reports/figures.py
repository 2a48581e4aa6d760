"""Formats numbers for tables, a dash if unknown; computes means and ratios with errors."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from bigtrk.errors import number_of

DASH = "-"
INTERVALS = (
    "Intervals, bars and ± of shares: Wilson's score interval (1927) at one standard deviation "
    "(68.3 %), and half its length; what is counted is taken as independent."
)


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` repeats and its standard error; None for a single repeat."""

    mean: float
    error: float | None
    n: int

    def times(self, factor: float) -> "Estimate":
        error = None if self.error is None else self.error * abs(factor)
        return Estimate(self.mean * factor, error, self.n)


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Returns mean and standard error of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
    return Estimate(fmean(known), error, len(known))


def ratio(above: Estimate, below: Estimate) -> Estimate:
    """Returns above/below of independent means; relative errors add in quadrature; below: not 0."""
    value = above.mean / below.mean
    error = None
    if above.error is not None and below.error is not None:
        error = math.hypot(above.error / below.mean, value * below.error / below.mean)
    return Estimate(value, error, min(above.n, below.n))


def wilson(share: float, n: int) -> tuple[float, float]:
    """Returns Wilson's interval (J. Am. Stat. Assoc. 22 (1927) 209), 1 sigma, of share of n > 0."""
    share = min(max(share, 0.0), 1.0)  # files from anywhere may hold other values
    scale = 1 + 1 / n
    centre = (share + 1 / (2 * n)) / scale
    half = math.sqrt(share * (1 - share) / n + 1 / (4 * n * n)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def count_of(value: float | None, noun: str) -> str:
    """Formats a count with its noun, in the digits of `count`: "1 event", "12.3 K events"."""
    return number_of(math.nan if value is None else value, noun, count(value))


def count(value: float | None) -> str:
    """Formats a count: exact below 10000, else three digits with K, M, G (powers of 1000)."""
    if value is None:
        return DASH
    if abs(value) < 9_999.5:
        return f"{value:z,.0f}"
    for unit in ("K", "M", "G"):
        value /= 1000
        if abs(value) < 999.5 or unit == "G":
            break
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f} {unit}"


def rate(value: float | None) -> str:
    return DASH if value is None else count(value) if value >= 10 else f"{value:z.2f}"


def memory(value: float | None) -> str:
    if value is None:
        return DASH
    mebibytes = value / 2**20
    return f"{mebibytes:z,.0f} MiB" if mebibytes < 1023.5 else f"{mebibytes / 1024:,.1f} GiB"


def seconds(value: float | None) -> str:
    """Formats seconds, two decimals as in the table of Lazar et al.; more digits below 0.1 s."""
    if value is None:
        return DASH
    return f"{value:,.2f}" if value >= 0.1 else f"{value:z.4f}"


def percent(value: float | None, decimals: int = 3) -> str:
    """Formats a ratio in percent, three decimals as in the table of Lazar et al."""
    return DASH if value is None else f"{100 * value:z.{decimals}f}"


def loss(value: float | None) -> str:
    """Formats a loss, five decimals as in the table of Lazar et al."""
    return DASH if value is None else f"{value:z.5f}"


def decimal(value: float | None) -> str:
    """Formats a factor, such as the imbalance or the speed-up."""
    return DASH if value is None else f"{value:z.2f}"


def small(value: float | None) -> str:
    """Formats dollars or kilowatt-hours; with three digits below 10."""
    return DASH if value is None else f"{value:,.2f}" if value >= 10 else f"{value:.3g}"


def with_error(value: Estimate | None, decimals: int) -> str:
    """Formats a mean, followed by its standard error if there is one."""
    if value is None:
        return DASH
    error = "" if value.error is None else f" ±{value.error:,.{decimals}f}"
    return f"{value.mean:,.{decimals}f}{error}"


def seconds_with_error(value: Estimate | None) -> str:
    """Formats mean seconds with an error, with as many decimals as `seconds`."""
    return with_error(value, 2 if value is None or value.mean >= 0.1 else 4)


def percent_with_error(value: Estimate | None, decimals: int) -> str:
    """Formats a mean ratio in percent, with its error."""
    return with_error(value and value.times(100), decimals)


def text(value: object) -> str:
    return DASH if value is None or value == "" else str(value)


def settings(section: Mapping[str, Any] | None) -> str:
    """Formats a section of a configuration in one line: "hidden 64, layers 8"."""
    return ", ".join(f"{key} {_setting(value)}" for key, value in (section or {}).items()) or DASH


def _setting(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({settings(value)})"
    if isinstance(value, list):
        return " ".join(_setting(item) for item in value) or "none"
    if isinstance(value, float):
        return f"{value:.12g}"
    return "none" if value is None else str(value)
