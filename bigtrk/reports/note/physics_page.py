"""The second page of a note on a run that was evaluated: what its model finds."""

from collections.abc import Iterator, Sequence

from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.reports.elements.charts import Plot
from bigtrk.reports.evaluation.bin_plots import (
    AXES,
    EDGE_EFFICIENCY,
    KEY,
    TRACK_EFFICIENCY,
    bin_plots,
)
from bigtrk.reports.evaluation.score_plots import (
    EDGES_BY_CUT,
    EDGES_RULE,
    ROC,
    TRACKS_BY_CUT,
    TRACKS_RULE,
    score_plots,
)
from bigtrk.reports.evaluation.tables import EDGES, LIMITS, TRACKS, evaluation_tables
from bigtrk.reports.note.axes import DIM
from bigtrk.reports.note.sheet import PLOTS, Sheet
from bigtrk.reports.note.table import add_table

# What is drawn: of each line the first that has a point.
CHOSEN = (
    ((ROC, "other edges kept, %"),),
    ((TRACKS_BY_CUT, "score cut"), (EDGES_BY_CUT, "score cut")),
    *(((TRACK_EFFICIENCY, AXES[axis]), (EDGE_EFFICIENCY, AXES[axis])) for axis in ("pt", "eta")),
)


def physics_page(record: EvaluationRecord) -> Sheet:
    """Makes the page of ROC, rates against the cut, efficiencies against pT and eta with binomial
    intervals, as far as the record has them, and of the tables of edges, tracks and their limits.
    """
    page = Sheet()
    page.heading(f"Evaluated on {record.events} events of {record.data}", 11)
    page.space(4)
    plots = _plots(record)
    page.plots(plots, PLOTS if len(plots) > 2 else PLOTS / 2)
    for rule in _rules(plots):
        page.paragraph(rule, 6.5, colour=DIM, most=3)
    page.space(8)
    for table in evaluation_tables([("", record)]):
        if table.title in (EDGES, TRACKS, LIMITS):
            add_table(page, table)
    return page


def _plots(record: EvaluationRecord) -> list[Plot]:
    made = {
        (plot.title, plot.x_label): plot
        for plot in (*score_plots(record), *bin_plots(record))
        if plot.filled
    }
    chosen = [next((made[key] for key in keys if key in made), None) for keys in CHOSEN]
    return [plot for plot in chosen if plot]


def _rules(plots: Sequence[Plot]) -> Iterator[str]:
    """Says how to read the plots."""
    shown = {plot.title for plot in plots}
    if TRACKS_BY_CUT in shown:
        yield TRACKS_RULE
    if {ROC, EDGES_BY_CUT} & shown:
        yield EDGES_RULE
    if {TRACK_EFFICIENCY, EDGE_EFFICIENCY} & shown:
        yield KEY
