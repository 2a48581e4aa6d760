"""Edge metrics as the columns of a table."""

from bigtrk.records.run import EdgeMetrics
from bigtrk.reports.elements import figures
from bigtrk.tracks.edge_metrics import undefined_note

METRIC_COLUMNS = (
    "efficiency %",
    "target purity %",
    "total purity %",
    "purity %",
    "AUC %",
    "val. loss",
)
PAPER = "Columns and precision as in the table of Lazar et al.; metrics are means over events."


def metric_cells(metrics: EdgeMetrics | None) -> tuple[str, ...]:
    """The cells of METRIC_COLUMNS."""
    known = metrics or EdgeMetrics()
    return (
        figures.percent(known.efficiency),
        figures.percent(known.target_purity),
        figures.percent(known.total_purity),
        figures.percent(known.purity),
        figures.percent(known.auc),
        figures.loss(known.loss),
    )


def undefined(metrics: EdgeMetrics | None) -> str:
    """Which means leave out how many events, in words; "" where none does."""
    return undefined_note(metrics.events_skipped, metrics.events_without_auc) if metrics else ""
