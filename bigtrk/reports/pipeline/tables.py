"""The tables of a pipeline's evaluations, the same for terminal and page."""

from collections.abc import Iterator, Sequence

from bigtrk.records.evaluation import Binned
from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.binned import BINNED_RULE, bin_rows, cell
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.evaluation.tables import (
    NO_PARTICLES,
    TRACK_COLUMNS,
    matching_cells,
    score_note,
)
from bigtrk.reports.pipeline.stage_table import stage_table

CATEGORIES = {
    "found": "found",
    "hits": "detector: hits that no edges join",
    "radius": "radius graph: true edges lacking",
    "filter": "filter: true edges cut",
    "true_edges_cut": "classifier: true edges below the cut",
    "merged": "classifier: merged by false edges",
    "builder": "track builder",
}
AXES = {
    "pt": "pT, GeV",
    "eta": "eta",
    "distance": "distance to the nearest particle",
    "vertex": "vertex radius, mm",
    "hits": "hits",
}
SHORT = {
    "found": "found %",
    "hits": "det. %",
    "radius": "radius %",
    "filter": "filter %",
    "true_edges_cut": "cut %",
    "merged": "merged %",
    "builder": "builder %",
}

LOSSES = "Where particles are lost"
LOSSES_RULE = (
    "ATLAS matching, strict mode; each particle is in the first row that fits. Detector: even all "
    "its true edges together give no track. Radius graph, filter, classifier (edges above the "
    "cut): the true edges that are left there give none. Merged: they do, but the false edges "
    "above the cut join it to others. Track builder: all edges above the cut would give one."
)
AXES_RULE = (
    "Distance: in eta and phi to the nearest other particle of enough hits. Vertex radius: "
    "distance of the production vertex from the beam line; nearer ones count in the first bin."
)


def evaluation_tables(record: PipelineEvaluationRecord) -> list[Table]:
    """Makes the tables of one evaluation, in reading order."""
    return [stage_table(record), _losses(record), _tracks(record), *_in_bins(record)]


def _losses(record: PipelineEvaluationRecord) -> Table:
    total = sum(record.losses.values())
    rows = tuple(
        (what, figures.count(record.losses[name]), cell(record.losses[name], total))
        for name, what in CATEGORIES.items()
        if name in record.losses
    )
    columns = ("particles to be found", "particles", "%")
    return Table(LOSSES, columns, rows, (LOSSES_RULE, BINNED_RULE))


def _tracks(record: PipelineEvaluationRecord) -> Table:
    rows = tuple(map(matching_cells, record.tracks.matching))
    return Table("Tracks", TRACK_COLUMNS, rows, tuple(_notes(record)), text_columns=2)


def _notes(record: PipelineEvaluationRecord) -> Iterator[str]:
    """Says what must be known of an evaluation to read its figures."""
    yield (
        f"{score_note(record.tracks.trackml_score)} Tracks and particles of at least "
        f"{record.min_hits} hits, particles of at least {record.pt_min:g} GeV; matching fraction "
        f"{record.matching_fraction:g}."
    )
    if not sum(record.losses.values()):
        yield NO_PARTICLES
    if record.events_trained_on:
        yield (
            f"Stages were trained on {record.events_trained_on} of these events, so this does not "
            "tell how they do on others."
        )
    if record.events_left_out:
        yield f"{record.events_left_out} events that a stage was trained on are left out."
    yield from (f"{note}." for note in record.notes)


def _in_bins(record: PipelineEvaluationRecord) -> Iterator[Table]:
    """Makes a table by each quantity: a row per bin, a column per category that has particles."""
    for axis, label in AXES.items():
        known = dict(category_columns(record, axis))
        if rows := bin_rows([*known.values()]) if known else ():
            headings = (label, "particles", *(SHORT[name] for name in known))
            rules = (AXES_RULE,) if axis in ("distance", "vertex") else ()
            yield Table(f"Losses by {label}", headings, rows, rules)


def category_columns(record: PipelineEvaluationRecord, axis: str) -> Sequence[tuple[str, Binned]]:
    """Lists the categories that have particles and are known in bins of a quantity, by name."""
    found = ((name, record.loss_bins.get(f"{name}_by_{axis}")) for name in CATEGORIES)
    return [(name, binned) for name, binned in found if binned and record.losses.get(name)]
