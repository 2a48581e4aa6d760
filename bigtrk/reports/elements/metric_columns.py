"""Edge metrics as the columns of a table."""

from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.reports.elements import figures

METRIC_COLUMNS = (
    "efficiency %",
    "target purity %",
    "total purity %",
    "purity %",
    "AUC %",
    "val. loss",
)
PAPER = "Columns and precision as in the table of Lazar et al.; metrics are means over events."


def metric_cells(metrics: MeanEdgeMetrics | None) -> tuple[str, ...]:
    """Returns the cells of METRIC_COLUMNS."""
    known = metrics or MeanEdgeMetrics()
    return (
        figures.percent(known.efficiency),
        figures.percent(known.target_purity),
        figures.percent(known.total_purity),
        figures.percent(known.purity),
        figures.percent(known.auc),
        figures.loss(known.loss),
    )
