"""Plots of an evaluation against what particles and edges are like."""

from collections.abc import Iterator
from typing import Any

from bigtrk.records.evaluation import LOG_AXES, Binned, EvaluationRecord, Judged, TrackRecord
from bigtrk.reports.elements.binned import BINNED_RULE, curve
from bigtrk.reports.elements.charts import Plot
from bigtrk.reports.evaluation.tables import CATEGORIES

MODES = ("strict", "acorn")
LOST = {name: what for name, what in CATEGORIES.items() if name != "found"}
NAMES = (*MODES, "edges", *LOST.values())
KEY = f"Tracks: ATLAS matching; dashes: perfect scores. Lost: strict mode. {BINNED_RULE}"
# Places in a bin where curves have their points, so that error bars stand side by side.
PLACES = dict(zip(NAMES, (0.44, 0.56, 0.5, 0.38, 0.46, 0.54, 0.62), strict=True))
TRACK_EFFICIENCY, EDGE_EFFICIENCY = "Track efficiency, %", "Edge efficiency, %"
AXES = {"pt": "pT, GeV", "eta": "eta", "vertex": "vertex radius, mm", "hits": "hits"}


def bin_plots(record: EvaluationRecord) -> Iterator[Plot]:
    """Makes plots by each quantity of efficiency, particles lost, duplicates; of fakes by eta; then
    of edges.
    """
    tracks = record.tracks or TrackRecord()
    for axis in AXES:
        yield _plot(TRACK_EFFICIENCY, axis, _by_mode(tracks, f"efficiency_by_{axis}"))
        yield _plot("Particles lost, %", axis, _lost(tracks, axis))
        yield _plot("Found more than once, %", axis, _by_mode(tracks, f"duplicates_by_{axis}"))
    yield _plot("Fake tracks, %", "eta", _by_mode(tracks, "fakes_by_eta"))
    for axis in ("pt", "eta"):
        efficiency = getattr(record.edge_bins, f"efficiency_by_{axis}")
        yield _plot(EDGE_EFFICIENCY, axis, [_curve("edges", efficiency, axis)])
    yield _plot("Edge purity, %", "eta", [_curve("edges", record.edge_bins.purity_by_eta, "eta")])


def _by_mode(tracks: TrackRecord, name: str) -> list[Any]:
    """Draws the model in each mode, and perfect scores dashed."""
    axis = name.rpartition("_")[2]
    perfect = tracks.perfect or Judged()
    return [
        *(_curve(mode, getattr(tracks.bins(mode), name), axis) for mode in MODES),
        *(_curve(mode, getattr(perfect.bins(mode), name), axis, dashed=True) for mode in MODES),
    ]


def _lost(tracks: TrackRecord, axis: str) -> list[Any]:
    return [
        _curve(what, tracks.loss_bins.get(f"{name}_by_{axis}"), axis) for name, what in LOST.items()
    ]


def _curve(name: str, binned: Binned | None, axis: str, dashed: bool = False) -> Any:
    shown = f"{name}, perfect scores" if dashed else name
    colour, log = NAMES.index(name), axis in LOG_AXES
    return curve(shown, binned, colour, log=log, dashed=dashed, place=PLACES[name])


def _plot(title: str, axis: str, curves: list[Any]) -> Plot:
    layout = {"showlegend": True, "xaxis": {"type": _scale(axis)}}
    return Plot(title, AXES[axis], curves, layout)


def _scale(axis: str) -> str:
    return "log" if axis in LOG_AXES else "linear"
