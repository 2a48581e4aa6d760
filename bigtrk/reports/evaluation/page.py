"""Plots of an evaluation against pT and eta: on a page of their own, and for a run's report."""

from collections.abc import Iterator
from html import escape
from pathlib import Path

from bigtrk.records.evaluation import Binned, EvaluationRecord, Judged, TrackRecord
from bigtrk.reports.elements.binned import BINNED_RULE, curve
from bigtrk.reports.elements.page_parts import legend, table_section, write_page
from bigtrk.reports.elements.plots import Line, line_plot
from bigtrk.reports.evaluation.tables import CATEGORIES, evaluation_tables

MODES = ("strict", "acorn")
LOST = {name: what for name, what in CATEGORIES.items() if name != "found"}
NAMES = (*MODES, "edges", *LOST.values())
KEY = f"Tracks: ATLAS matching; dashes: perfect scores. Lost: strict mode. {BINNED_RULE}"
# Places in a bin where curves have their points, so that error bars stand side by side.
PLACES = dict(zip(NAMES, (0.44, 0.56, 0.5, 0.38, 0.46, 0.54, 0.62), strict=True))
AXES = (("pt", "pT, GeV"), ("eta", "eta"))


def write_evaluation_html(record: EvaluationRecord, path: Path) -> None:
    """Writes the page of one evaluation to `path`, atomically."""
    write_page(
        path,
        title=f"bigtrk evaluation: {record.data}",
        headers="",
        legend=_key(record),
        plots="".join(_plots(record)),
        tables="".join(table_section(table) for table in evaluation_tables([("", record)])),
    )


def evaluation_section(name: str, record: EvaluationRecord) -> str:
    """Returns the plots of an evaluation as a section of a report; "" where nothing is in bins."""
    plots = "".join(_plots(record))
    if not plots:
        return ""
    title = escape(f"Evaluation of {name} against pT and eta")
    return f'<section><h2>{title}</h2>{_key(record)}<div class="plots">{plots}</div></section>'


def _key(record: EvaluationRecord) -> str:
    return legend(NAMES) + f"<p>{escape(KEY)}</p>" if any(_plots(record)) else ""


def _plots(record: EvaluationRecord) -> Iterator[str]:
    """Draws by pT and by eta efficiency, particles lost, duplicates; fakes by eta; then edges."""
    tracks = record.tracks or TrackRecord()
    for axis, label in AXES:
        yield _plot("Track efficiency, %", label, _by_mode(tracks, f"efficiency_by_{axis}"))
        yield _plot("Particles lost, %", label, _lost(tracks, axis))
        yield _plot("Found more than once, %", label, _by_mode(tracks, f"duplicates_by_{axis}"))
    yield _plot("Fake tracks, %", "eta", _by_mode(tracks, "fakes_by_eta"))
    for axis, label in AXES:
        efficiency = getattr(record.edge_bins, f"efficiency_by_{axis}")
        yield _plot("Edge efficiency, %", label, [_curve("edges", efficiency, axis)])
    yield _plot("Edge purity, %", "eta", [_curve("edges", record.edge_bins.purity_by_eta, "eta")])


def _by_mode(tracks: TrackRecord, name: str) -> list[Line]:
    """Draws the model in each mode, and perfect scores dashed."""
    axis = name.rpartition("_")[2]
    perfect = tracks.perfect or Judged()
    return [
        *(_curve(mode, getattr(tracks.bins(mode), name), axis) for mode in MODES),
        *(_curve(mode, getattr(perfect.bins(mode), name), axis, dashed=True) for mode in MODES),
    ]


def _lost(tracks: TrackRecord, axis: str) -> list[Line]:
    return [
        _curve(what, tracks.loss_bins.get(f"{name}_by_{axis}"), axis) for name, what in LOST.items()
    ]


def _curve(name: str, binned: Binned | None, axis: str, dashed: bool = False) -> Line:
    shown = f"{name}, perfect scores" if dashed else name
    colour, log = NAMES.index(name), axis == "pt"
    return curve(shown, binned, colour, log=log, dashed=dashed, place=PLACES[name])


def _plot(title: str, label: str, lines: list[Line]) -> str:
    return line_plot(title, label, lines, whole=False, log=label == AXES[0][1])
