"""Numbers as a table shows them; a value that is not known is a dash."""

from collections.abc import Mapping
from typing import Any

from bigtrk.reports.elements.estimates import Estimate

DASH = "-"


def count(value: float | None) -> str:
    """Formats a count: exact below 10000, else three digits with K, M, G (powers of 1000)."""
    if value is None:
        return DASH
    if abs(value) < 9_999.5:
        return f"{value:z,.0f}"
    for unit in ("K", "M"):
        value /= 1000
        if abs(value) < 999.5:
            return f"{_three_digits(value)} {unit}"
    return f"{_three_digits(value / 1000)} G"


def rate(value: float | None) -> str:
    """Formats edges per second."""
    return DASH if value is None else count(value) if value >= 10 else f"{value:z.2f}"


def memory(value: float | None) -> str:
    """Formats bytes in MiB or GiB."""
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


def share(value: float | None) -> str:
    """Formats a share of time in percent."""
    return percent(value, 1)


def loss(value: float | None) -> str:
    """Formats a loss, five decimals as in the table of Lazar et al."""
    return DASH if value is None else f"{value:z.5f}"


def norm(value: float | None) -> str:
    """Formats a norm in three digits: gradients' range over many powers of ten."""
    return DASH if value is None else f"{value:.3g}"


def decimal(value: float | None) -> str:
    """Formats a factor such as the imbalance or the speed-up."""
    return DASH if value is None else f"{value:z.2f}"


def small(value: float | None) -> str:
    """Formats dollars or kilowatt-hours, in three digits below 10: an epoch may take few."""
    return DASH if value is None else f"{value:,.2f}" if value >= 10 else f"{value:.3g}"


def with_error(value: Estimate | None, decimals: int) -> str:
    """Formats a mean, and behind it its standard error where it has one."""
    if value is None:
        return DASH
    error = "" if value.error is None else f" ±{value.error:,.{decimals}f}"
    return f"{value.mean:,.{decimals}f}{error}"


def seconds_with_error(value: Estimate | None) -> str:
    """Formats seconds with as many decimals as `seconds`."""
    return with_error(value, 2 if value is None or value.mean >= 0.1 else 4)


def percent_with_error(value: Estimate | None, decimals: int) -> str:
    """Formats a ratio in percent."""
    return with_error(value and value.times(100), decimals)


def text(value: object) -> str:
    """Formats any other value."""
    return DASH if value is None or value == "" else str(value)


def settings(section: Mapping[str, Any] | None) -> str:
    """Formats a section of a configuration in one line: "hidden 64, layers 8"."""
    return ", ".join(f"{key} {_setting(value)}" for key, value in (section or {}).items()) or DASH


def _setting(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({settings(value)})"
    if isinstance(value, list):
        return " ".join(_setting(item) for item in value) or "none"
    return "none" if value is None else str(value)


def _three_digits(value: float) -> str:
    for limit, decimals in ((9.995, 2), (99.95, 1)):
        if abs(value) < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"
