"""Methods of training beside each other: metrics against time, at equal time, at equal epochs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from rich.console import Console

from bigtrk.disk.files import write_json
from bigtrk.errors import InputError
from bigtrk.records.metrics import EpochRecord, MeanEdgeMetrics
from bigtrk.records.run_folder import Run, read_run
from bigtrk.reports import figures
from bigtrk.reports.document import Curve, Document, Facts, Plot, Plots, Table
from bigtrk.reports.facts import facts
from bigtrk.reports.metrics import METRICS, edge_numbers, with_interval
from bigtrk.reports.page import write_page
from bigtrk.reports.runs import finite
from bigtrk.reports.terminal import show

SHOWN = ("auc", "efficiency", "purity")
STUDY_FACTS = ("model", "target", "trained on", "validated on", "machine", "software")
TIME_NOTE = (
    "Validation of whole events, not counted in the time. Each method's last validation by then."
)
WORK_NOTE = "Work: edges of an epoch's steps over those of the events, each once."


@dataclass(frozen=True)
class Scored:
    """Validation after so many seconds and epochs (whole ones, at their ends) of training."""

    seconds: float
    epochs: int | None
    metrics: MeanEdgeMetrics


@dataclass(frozen=True)
class Method:
    """A way to train, and what its run recorded."""

    name: str
    run: Run

    @property
    def curve(self) -> list[Scored]:
        """Lists the validations by time."""
        run = self.run
        ends = accumulate(epoch.seconds for epoch in run.epochs)
        whole = [
            Scored(end, epoch.number if _is_whole(epoch) else None, epoch.validation)
            for end, epoch in zip(ends, run.epochs, strict=True)
            if epoch.validation
        ]
        known = [(found.seconds, found.validation) for found in run.validations]
        between = [Scored(seconds, None, metrics) for seconds, metrics in known if metrics]
        return sorted([*whole, *between], key=lambda scored: scored.seconds)

    def at(self, seconds: float) -> Scored | None:
        """Returns the last validation by then."""
        return next((s for s in reversed(self.curve) if s.seconds <= seconds), None)

    def after(self, epochs: int) -> Scored | None:
        return next((s for s in self.curve if s.epochs == epochs), None)

    def reaches(self, auc: float) -> float | None:
        """Returns the seconds until the AUC is as high."""
        return next((s.seconds for s in self.curve if (s.metrics.auc or 0.0) >= auc), None)

    @property
    def work(self) -> float | None:
        """Returns the edges computed in an epoch over those there are."""
        first, edges = self.run.epochs[:1], self.run.record.data.edges
        if not first or not edges or not first[0].steps:
            return None
        done = first[0].steps / (first[0].planned_steps or first[0].steps)
        return first[0].edges / done / edges

    @property
    def whole_epochs(self) -> int:
        """Counts the epochs that time did not cut short."""
        return sum(_is_whole(epoch) for epoch in self.run.epochs)


def _is_whole(epoch: EpochRecord) -> bool:
    return epoch.steps + (epoch.spikes or 0) == epoch.planned_steps


class StudyReport:
    """The runs of a study by the name of their method."""

    def __init__(self, folders: dict[str, Path]) -> None:
        """Reads the runs.

        Raises:
            InputError: a run cannot be read, or has not been validated yet.
        """
        self.methods = [Method(name, read_run(folder)) for name, folder in folders.items()]
        for method in self.methods:
            if not method.curve:
                raise InputError(f"{method.run.folder}: has no validation yet; let it train longer")
        self.seconds = min(method.curve[-1].seconds for method in self.methods)
        self.epochs = min(method.whole_epochs for method in self.methods)

    def tables(self) -> list[Table]:
        return [self._at_equal_time(), self._at_equal_epochs()]

    def show(self, console: Console) -> None:
        show(self.document(), console)

    def write(self, page: Path, result: Path) -> None:
        """Writes the page and a JSON file."""
        write_page(self.document(), page)
        write_json(result, self.summary())

    def document(self) -> Document:
        """Makes the report."""
        names = [method.name for method in self.methods]
        tables = self.tables()
        at_end = [(method.name, method.at(self.seconds)) for method in self.methods]
        return Document(
            title=f"bigtrk study: {', '.join(names)}",
            lead=f"{len(names)} ways to train, compared after {self.seconds:.0f} s of training.",
            numbers=[(name, edge_numbers(s.metrics) if s else []) for name, s in at_end],
            verdict=[tables[0].notes[-1]],
            parts=[
                Plots("Metrics by time", [self._plot(*metric) for metric in METRICS]),
                *tables,
                Facts("Study", self._facts()),
            ],
        )

    def summary(self) -> dict[str, Any]:
        """Returns each method at equal time and epochs, and its curve; JSON-able, NaN is None."""
        content = {
            "seconds": self.seconds,
            "epochs": self.epochs,
            "facts": self._facts(),
            "methods": {method.name: self._entry(method) for method in self.methods},
        }
        summary: dict[str, Any] = finite(content)
        return summary

    def _entry(self, method: Method) -> dict[str, Any]:
        by_time, by_epochs = method.at(self.seconds), method.after(self.epochs)
        return {
            "epochs": len(method.run.epochs),
            "work": method.work,
            "at_equal_time": by_time and by_time.metrics.model_dump(),
            "at_equal_epochs": by_epochs and by_epochs.metrics.model_dump(),
            "curve": [
                {"seconds": s.seconds, **{name: getattr(s.metrics, name) for name in SHOWN}}
                for s in method.curve
            ],
        }

    def _facts(self) -> dict[str, str]:
        known = facts(self.methods[0].run)
        return {key: known[key] for key in STUDY_FACTS}

    def _at_equal_time(self) -> Table:
        found = [(method, method.at(self.seconds)) for method in self.methods]
        lowest = min((s.metrics.auc for _, s in found if s and s.metrics.auc), default=None)
        rows = tuple(
            (
                method.name,
                figures.count(len(method.run.steps)),
                figures.decimal(method.work),
                *_cells(scored),
                figures.seconds(None if lowest is None else method.reaches(lowest)),
            )
            for method, scored in found
        )
        reached = f"s to AUC {figures.percent(lowest, 2)}"
        columns = ("method", "steps", "work", "AUC", "efficiency", "purity", reached)
        title = f"After {self.seconds:.0f} s of training"
        return Table(title, columns, rows, (TIME_NOTE, WORK_NOTE, _verdict(found)))

    def _at_equal_epochs(self) -> Table:
        found = [(method, method.after(self.epochs)) for method in self.methods]
        if not self.epochs:
            return Table("After an epoch", (), (), ("Not every method finished an epoch.",))
        rows = tuple(
            (method.name, *_cells(scored), figures.seconds(scored.seconds if scored else None))
            for method, scored in found
        )
        columns = ("method", "AUC", "efficiency", "purity", "s")
        title = f"After {self.epochs} epoch{'s' if self.epochs > 1 else ''}"
        return Table(title, columns, rows, (_verdict(found),))

    def _plot(self, title: str, metric: str, scale: float) -> Plot:
        lines = []
        for number, method in enumerate(self.methods):
            known = [(s.seconds, with_interval(s.metrics, metric)) for s in method.curve]
            rows = [(t, *(scale * end for end in ends)) for t, ends in known if ends]
            lines.append(Curve(method.name, rows, number))
        return Plot(title, ("seconds of training",), lines)


def _verdict(found: Sequence[tuple[Method, Scored | None]]) -> str:
    """Says which method is ahead, and by how much."""
    known = [(s.metrics.auc, m.name) for m, s in found if s and s.metrics.auc is not None]
    if len(known) < 2:
        return "Too few methods have an AUC to compare."
    (best, name), (second, other) = sorted(known, reverse=True)[:2]
    return f"Highest AUC: {name}, {100 * (best - second):.3f} points above {other}."


def _cells(scored: Scored | None) -> Sequence[str]:
    if scored is None:
        return [figures.DASH] * len(SHOWN)
    return [figures.percent(getattr(scored.metrics, name)) for name in SHOWN]
