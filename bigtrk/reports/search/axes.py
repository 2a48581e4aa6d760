"""The settings of a search as axes of plots."""

import json
import math
from dataclasses import dataclass
from typing import Any

from bigtrk.records.quantities import LARGEST
from bigtrk.records.search import SearchRecord
from bigtrk.reports.elements.charts import shown


@dataclass(frozen=True)
class Axis:
    """An axis of a setting: of numbers, or of `choices` by their texts. ends: the bounds of the
    space, where they are known.
    """

    key: str
    is_log: bool = False
    choices: tuple[str, ...] = ()
    ends: tuple[float, float] | None = None

    @property
    def layout(self) -> dict[str, Any]:
        """Returns the axis as plotly's layout has it."""
        if self.choices:
            names = [*map(shown, self.choices)]
            return {"type": "category", "categoryorder": "array", "categoryarray": names}
        return {"type": "log" if self.is_log else "linear", "exponentformat": "power"}

    def place(self, value: Any) -> float | str | None:
        """Returns where a value stands; None: nowhere."""
        if self.choices:
            text = setting_text(value)
            return shown(text) if text in self.choices else None
        number = as_number(value)
        return None if number is None or (self.is_log and number <= 0) else number

    def share(self, value: Any) -> float | None:
        """Returns how far from the lower to the upper end, or from the first choice to the last, a
        value stands, 0 to 1; None: that is not known.
        """
        place = self.place(value)
        if isinstance(place, str):
            return self.choices.index(setting_text(value)) / max(1, len(self.choices) - 1)
        if place is None or self.ends is None:
            return None
        low, high, at = (math.log(x) if self.is_log else x for x in (*self.ends, place))
        return (at - low) / (high - low) if low < high else None


def axes(record: SearchRecord) -> list[Axis]:
    """Makes an axis of each setting that is searched."""
    return [_axis(key, place) for key, place in record.space.items()]


def setting_text(value: Any) -> str:
    """Writes the value of a setting, numbers in four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def as_number(value: Any) -> float | None:
    """Returns a number that axes have room for; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= LARGEST else None


def _axis(key: str, place: Any) -> Axis:
    if isinstance(place, list):
        return Axis(key, choices=tuple(map(setting_text, place)))
    known = place if isinstance(place, dict) else {}
    low, high = (as_number(known.get(end)) for end in ("low", "high"))
    is_log = known.get("log") is True
    if low is None or high is None or low >= high or (is_log and low <= 0):
        return Axis(key, is_log=is_log)
    return Axis(key, is_log=is_log, ends=(low, high))
