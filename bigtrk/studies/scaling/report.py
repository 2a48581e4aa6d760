"""The report of one scaling series, or of several side by side: terminal, JSON lines, page."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError
from bigtrk.reports.document import Facts
from bigtrk.reports.facts import engine_name
from bigtrk.reports.page import write_page
from bigtrk.reports.runs import finite
from bigtrk.reports.terminal import show
from bigtrk.studies.scaling.page import series_report
from bigtrk.studies.scaling.points import Point, points
from bigtrk.studies.scaling.series import Series, read_series
from bigtrk.studies.scaling.tables import series_facts, series_tables


class SeriesReport:
    """Series read once, for every form of the report."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Reads the series.

        Raises:
            InputError: a folder holds no series or no finished epoch, or two series have one name.
        """
        self._every = [read_series(folder) for folder in folders]
        names = [series.name for series in self._every]
        if len(set(names)) < len(names):
            raise InputError(f"{', '.join(names)}: rename a folder, series are told by their names")
        self._points = [point for x in self._every for point in points(x)]
        headers = [Facts(f"Series {x.name}", series_facts(x)) for x in self._every]
        tables = series_tables(self._every, self._points)
        self.document = series_report(self._every, self._points, headers, tables)

    def show(self, console: Console) -> None:
        """Prints the report."""
        show(self.document, console)

    def write_html(self, path: Path) -> None:
        """Writes one self-contained page."""
        write_page(self.document, path)

    def lines(self) -> list[dict[str, Any]]:
        """Returns an object per series and number of ranks, JSON-able: NaN becomes None."""
        by_name = {series.name: series for series in self._every}
        return [finite(_entry(point, by_name[point.series])) for point in self._points]

    def write_lines(self, path: Path) -> None:
        """Writes `lines` as JSON lines."""
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in self.lines())
        write_atomically(path, lambda temporary: temporary.write_text(text))


def _entry(point: Point, series: Series) -> dict[str, Any]:
    first = point.runs[0].record
    known = {k: v for k, v in vars(point).items() if k not in ("runs", "shares")}
    return {
        **{k: asdict(v) if hasattr(v, "__dataclass_fields__") else v for k, v in known.items()},
        "kilowatt_hours": point.power.kilowatt_hours and asdict(point.power.kilowatt_hours),
        "metrics": {name: x and asdict(x) for name, x in point.metrics.items()},
        "shares": point.shares and point.shares.model_dump(),
        "runs": [str(run.folder) for run in point.runs],
        "engine": engine_name(first),
        "machine": first.machine.model_dump(),
        "parameters": first.parameters,
        "data": first.data.model_dump(),
        "price_per_device_hour": series.record.price_per_device_hour,
    }
