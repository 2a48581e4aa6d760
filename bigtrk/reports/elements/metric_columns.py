"""Edge metrics as the columns of a table."""

from collections.abc import Callable

from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.estimates import wilson

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


def purity_edges(metrics: MeanEdgeMetrics) -> int | None:
    """Counts the predicted edges that are target or false ones, of which the purity is a share."""
    predicted, found = metrics.n_predicted, metrics.n_found
    if predicted is None or metrics.n_true_predicted is None or found is None:
        return None
    return predicted - (metrics.n_true_predicted - found)


# The edges that each ratio is a share of, on which its binomial interval rests.
DENOMINATORS: dict[str, Callable[[MeanEdgeMetrics], int | None]] = {
    "efficiency": lambda metrics: metrics.n_target,
    "target_purity": lambda metrics: metrics.n_predicted,
    "total_purity": lambda metrics: metrics.n_predicted,
    "purity": purity_edges,
}


def with_interval(metrics: MeanEdgeMetrics | None, name: str) -> tuple[float, ...]:
    """Returns a metric, and after it the ends of its binomial interval where it has one; nothing
    where it is not known.
    """
    value = getattr(metrics, name, None)
    if value is None:
        return ()
    count = DENOMINATORS.get(name)
    whole = count(metrics) if count and metrics else None
    return (value, *wilson(value, whole)) if whole else (value,)
