"""Plots of what runs recorded by step and by epoch."""

from collections.abc import Iterator, Sequence
from typing import Any

from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements.charts import Plot, by_whole_numbers, curve
from bigtrk.reports.elements.metric_columns import with_interval
from bigtrk.reports.embedding import embedding_plot
from bigtrk.reports.norms import total

TRAINING_LOSS, LEARNING_RATE = "Training loss", "Learning rate"
VALIDATION_LOSS = "Validation loss"
NORMS = (("Norm of the gradient", "gradient"), ("Norm of the weights", "weight"))
METRICS = (
    (VALIDATION_LOSS, "loss", 1.0),
    ("Efficiency, %", "efficiency", 100.0),
    ("Target purity, %", "target_purity", 100.0),
    ("Total purity, %", "total_purity", 100.0),
    ("Purity, %", "purity", 100.0),
    ("AUC, %", "auc", 100.0),
)


def run_plots(runs: Sequence[Run]) -> Iterator[Plot]:
    """Makes plots of losses, learning rates and norms by step, of validation metrics by epoch."""
    yield Plot(TRAINING_LOSS, "step", _by_step(runs, "loss"))
    yield Plot(LEARNING_RATE, "step", _by_step(runs, "lr"))
    for title, kind in NORMS:
        yield Plot(title, "step", _norms(runs, kind))
    for title, metric, scale in METRICS:
        lines = [
            metric_curve(name, run, metric, scale, number)
            for number, (name, run) in enumerate(zip(labels(runs), runs, strict=True))
        ]
        yield Plot(title, "epoch", lines, by_whole_numbers(lines))
    yield embedding_plot(runs)


def metric_curve(name: str, run: Run, metric: str, scale: float, number: int) -> Any:
    """Makes a curve of a metric of validation, with its binomial interval where it has one."""
    rows = [
        (epoch.number, *(scale * end for end in ends))
        for epoch in run.epochs
        if (ends := with_interval(epoch.validation, metric))
    ]
    return curve(name, rows, number)


def _by_step(runs: Sequence[Run], quantity: str) -> list[Any]:
    lines = []
    for number, (name, run) in enumerate(zip(labels(runs), runs, strict=True)):
        values = [(step.step, getattr(step, quantity)) for step in run.steps]
        lines.append(curve(name, [(x, y) for x, y in values if y is not None], number))
    return lines


def _norms(runs: Sequence[Run], kind: str) -> list[Any]:
    """Makes curves of the norm of all parts of the model together."""
    lines = []
    for number, (name, run) in enumerate(zip(labels(runs), runs, strict=True)):
        values = [(s.step, total(getattr(s.norms, kind))) for s in run.steps if s.norms]
        lines.append(curve(name, [(x, y) for x, y in values if y is not None], number))
    return lines
