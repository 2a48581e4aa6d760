"""All settings and the metric of each trial in one plot, on parallel axes."""

import math
from collections.abc import Iterator, Sequence

from bigtrk.records.search import Trial
from bigtrk.reports.elements.charts import Plot, shown
from bigtrk.reports.search.axes import Axis, setting_text
from bigtrk.reports.search.metric import Metric
from bigtrk.reports.search.traces import Piece, pieces, told

GOOD, REST = "best quarter", "the others"
COLOURS = {REST: 7, GOOD: 0}
FEWEST, MOST = 2, 8  # settings
MARGIN = 0.25  # of the distance of two axes


def parallel_plots(
    trials: Sequence[Trial], settings: Sequence[Axis], metric: Metric
) -> Iterator[Plot]:
    """Makes the plot, where there are a few settings: each trial is a line from setting to setting,
    each on an axis of its own from its lower to its upper end, and on to the metric, whose best
    value is on top.
    """
    known = [axis for axis in settings if axis.choices or axis.ends]
    values = sorted(
        (x for trial in trials if (x := metric.value(trial)) is not None),
        key=lambda x: metric.sign * x,
    )
    if not FEWEST <= len(known) <= MOST or len(set(values)) < FEWEST:
        return
    best, limit, worst = values[0], values[math.ceil(len(values) / 4) - 1], values[-1]
    lines: dict[str, list[Piece]] = {REST: [], GOOD: []}
    for trial in trials:
        value = metric.value(trial)
        shares = [axis.share(trial.record.settings.get(axis.key)) for axis in known]
        shares.append(None if value is None else (value - worst) / (best - worst))
        points = [(place, share) for place, share in enumerate(shares) if share is not None]
        if value is not None and len(points) == len(shares):
            name = GOOD if metric.sign * value <= metric.sign * limit else REST
            text = told(trial.record.number, trial.record.settings)
            lines[name].append(Piece(points, f"{text}<br>{metric.text(value)}"))
    ends = f"{metric.text(worst)} to {metric.text(best)}"
    ticks = [*map(_tick, known), f"{shown(metric.title)}<br>{ends}"]
    layout = {
        "xaxis": {
            "tickvals": [*range(len(ticks))],
            "ticktext": ticks,
            "range": [-MARGIN, len(ticks) - 1 + MARGIN],
            # Names that stick out are left out otherwise; these do so to the left alone.
            "tickangle": -35,
            "ticklabeloverflow": "allow",
        },
        "margin": {"l": 90},
        "yaxis": {"visible": False, "range": [-0.03, 1.03]},
    }
    traces = [
        pieces(name, own, COLOURS[name]).update(hovertemplate="%{text}<extra></extra>")
        for name, own in lines.items()
    ]
    yield Plot("Settings and metric", "", traces, layout)


def _tick(axis: Axis) -> str:
    """Names a setting and its ends, from the lower to the upper."""
    ends = (axis.choices[0], axis.choices[-1]) if axis.choices else axis.ends or ()
    return f"{shown(axis.key)}<br>{shown(' to '.join(map(setting_text, ends)))}"
