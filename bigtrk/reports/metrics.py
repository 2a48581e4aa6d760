"""Edge metrics, particles lost and other ratios: as cells of tables, as curves with intervals, as
numbers that count.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, pairwise

from bigtrk.records.evaluation import LOG_AXES, Binned
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.reports import figures
from bigtrk.reports.document import Axis, Curve, Number, Plot
from bigtrk.reports.figures import wilson

PAPER = "Columns and precision as in the table of Lazar et al.; metrics are means over events."
# Title, name and scale of each metric's plot.
METRICS = (
    ("Validation loss", "loss", 1.0),
    ("Efficiency, %", "efficiency", 100.0),
    ("Target purity, %", "target_purity", 100.0),
    ("Total purity, %", "total_purity", 100.0),
    ("Purity, %", "purity", 100.0),
    ("AUC, %", "auc", 100.0),
)
AXES = {
    "pt": "pT, GeV",
    "eta": "eta",
    "distance": "distance to the nearest particle",
    "vertex": "vertex radius, mm",
    "hits": "hits",
}
BINNED_RULE = (
    "Bars and ±: Wilson's score interval (1927) at one standard deviation (68.3 %), and half its "
    "length; counts are taken as independent."
)
NO_PARTICLES = (
    "No particle has that many hits and a known pT that high; --pt-min 0 takes those of unknown "
    "momentum, too."
)


# Column and name of each metric that tables have.
COLUMNS = {
    "efficiency %": "efficiency",
    "target purity %": "target_purity",
    "total purity %": "total_purity",
    "purity %": "purity",
    "AUC %": "auc",
    "val. loss": "loss",
}
METRIC_COLUMNS = tuple(COLUMNS)


def metric_cells(metrics: MeanEdgeMetrics | None) -> dict[str, str]:
    """Returns the metrics as cells by their columns."""
    return {
        column: (figures.loss if name == "loss" else figures.percent)(getattr(metrics, name, None))
        for column, name in COLUMNS.items()
    }


def _purity_edges(metrics: MeanEdgeMetrics) -> int | None:
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
    "purity": _purity_edges,
}


def with_interval(
    metrics: MeanEdgeMetrics | None, name: str, scale: float = 1.0
) -> tuple[float, ...]:
    """Returns a metric, and after it the ends of its binomial interval where it has one; nothing
    where it is not known.
    """
    value = getattr(metrics, name, None)
    if value is None:
        return ()
    count = DENOMINATORS.get(name)
    whole = count(metrics) if count and metrics else None
    return tuple(scale * x for x in (value, *(wilson(value, whole) if whole else ())))


def share_number(label: str, share: float | None, whole: int | None) -> list[Number]:
    """Makes a number of a share of `whole`, with its binomial interval; nothing of None."""
    if share is None:
        return []
    value = f"{figures.percent(share, 1)} %"
    if not whole or not 0 <= share <= 1:
        return [Number(label, value)]
    low, high = wilson(share, whole)
    basis = f"{100 * low:.1f} to {100 * high:.1f}; of {figures.count(whole)}"
    return [Number(label, value, basis)]


def edge_numbers(metrics: MeanEdgeMetrics) -> list[Number]:
    """Lists efficiency, purity and AUC of edges, as far as they are known."""
    shares = []
    for name in ("efficiency", "purity"):
        whole = DENOMINATORS[name](metrics)
        shares += share_number(f"edge {name}", getattr(metrics, name), whole)
    return [*shares, *share_number("AUC of edges", metrics.auc, None)]


def share_cell(part: int, whole: int) -> str:
    """Formats a ratio in percent with half its interval; a dash where nothing is counted."""
    if not whole:
        return figures.DASH
    low, high = wilson(part / whole, whole)
    return f"{100 * part / whole:.1f} ±{50 * (high - low):.1f}"


def bin_plot(
    title: str,
    axis: str,
    ratios: Mapping[str, Binned | None],
    colours: Sequence[int],
    dashed: Container[str] = (),
) -> Plot:
    """Makes a plot of ratios against a quantity of AXES, whose points stand side by side in a bin.
    colours: of the curves, from the first again after the last. dashed: names of curves.
    """
    middle = (len(ratios) - 1) / 2
    curves = [
        bin_curve(name, binned, axis, colour, 0.5 + 0.06 * (number - middle), name in dashed)
        for number, ((name, binned), colour) in enumerate(zip(ratios.items(), cycle(colours)))
    ]
    scale: Axis = "log" if axis in LOG_AXES else "linear"
    return Plot(title, (AXES[axis],), curves, scale, legend=len(ratios) > 1)


def bin_curve(
    name: str,
    binned: Binned | None,
    axis: str,
    colour: int,
    place: float = 0.5,
    dashed: bool = False,
) -> Curve:
    """Makes a curve of the ratio in percent in each bin that counts anything, with its interval, at
    `place` between the bin's limits (0 to 1).
    """
    points, texts = [], []
    log = axis in LOG_AXES
    limits = pairwise(binned.edges) if binned else ()
    counts = zip(binned.part, binned.whole, strict=True) if binned else ()
    for (low, high), (part, whole) in zip(limits, counts, strict=True):
        if whole:
            x = low * (high / low) ** place if log else low + (high - low) * place
            ends = (100 * end for end in wilson(part / whole, whole))
            points.append((x, 100 * part / whole, *ends))
            texts.append(f"{low:g} to {high:g}: {part} of {whole}")
    return Curve(name, points, colour, "dashes" if dashed else "line", texts=texts)


def lost_plot(axis: str, lost: Mapping[str, str], bins: Mapping[str, Binned]) -> Plot:
    """Makes the plot of particles lost against a quantity. lost: the categories by name; bins: by
    category and quantity, as "merged_by_pt".
    """
    ratios = {what: bins.get(f"{name}_by_{axis}") for name, what in lost.items()}
    return bin_plot("Particles lost, %", axis, ratios, range(2, 8))


def loss_rows(losses: Mapping[str, int], names: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Makes a row of each category of losses that is counted."""
    total = sum(losses.values())
    for what, n in ((what, losses[name]) for name, what in names.items() if name in losses):
        share = share_cell(n, total)
        yield {"particles to be found": what, "particles": figures.count(n), "%": share}


def loss_limit(losses: Mapping[str, int], limits: Mapping[str, Iterable[str]]) -> str:
    """Says what loses most of the particles to be found. limits: the categories of each culprit."""
    total = sum(losses.values())
    if not total:
        return "What limits the tracks is not known: there are no particles to be found."
    lost = {what: sum(losses.get(name, 0) for name in names) for what, names in limits.items()}
    first = max(lost, key=lambda what: lost[what])
    if not lost[first]:
        return f"Nothing limits the tracks: all {figures.count(total)} particles are found."
    shares = ", ".join(f"the {what} {100 * n / total:.1f}" for what, n in lost.items())
    return f"The {first} limits the tracks: of 100 particles are lost by {shares}."
