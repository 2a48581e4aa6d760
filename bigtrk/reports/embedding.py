"""How many edges an embedding's neighbours make, epoch by epoch."""

from collections.abc import Sequence
from typing import Any

from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.charts import Plot, by_whole_numbers, curve
from bigtrk.reports.elements.layout import Table

NEIGHBOURS = "Neighbours in the embedding: edges of an event"
RULE = (
    "Pairs of hits within the smallest radius that keeps so many of the target edges of all "
    "validation events; edges per event, and the share of all true edges among them."
)


def embedding_tables(runs: Sequence[Run]) -> list[Table]:
    """Makes a table of each run that trains an embedding and has validated it."""
    named = zip(labels(runs), runs, strict=True)
    return [_of_run(name, run) for name, run in named if any(e.embedding for e in run.epochs)]


def embedding_plot(runs: Sequence[Run]) -> Plot:
    """Makes a plot of the edges of an event within the radius that keeps so many target edges."""
    lines: list[Any] = []
    for name, run in zip(labels(runs), runs, strict=True):
        known = [(epoch.number, epoch.embedding.at) for epoch in run.epochs if epoch.embedding]
        for kept in dict.fromkeys(kept for _, at in known for kept in at):
            rows = [(number, at[kept].edges) for number, at in known if kept in at]
            lines.append(curve(f"{name}, {kept} % of target edges kept", rows, len(lines)))
    layout = {**by_whole_numbers(lines), "yaxis": {"type": "log"}}
    return Plot(NEIGHBOURS, "epoch", lines, layout)


def _of_run(name: str, run: Run) -> Table:
    rows = tuple(
        (
            str(epoch.number),
            figures.loss(epoch.embedding.loss),
            f"{kept} %",
            figures.small(graph.radius),
            figures.count(graph.edges),
            figures.percent(graph.efficiency, 2),
        )
        for epoch in run.epochs
        if epoch.embedding
        for kept, graph in epoch.embedding.at.items()
    )
    columns = ("epoch", "val. loss", "target edges", "radius", "edges", "true edges %")
    return Table(f"Neighbours in the embedding of {name}", columns, rows, (RULE,), text_columns=0)
