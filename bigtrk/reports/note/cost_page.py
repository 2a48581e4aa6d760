"""The second page of a note on a run that was not evaluated: what the training took."""

from collections.abc import Iterator

from bigtrk.records.run_folder import Run
from bigtrk.reports.elements.charts import Plot, by_whole_numbers, curve
from bigtrk.reports.note.sheet import PLOTS, Sheet
from bigtrk.reports.note.table import add_table
from bigtrk.reports.routed_events import ROUTES
from bigtrk.reports.scaling import Scaling
from bigtrk.reports.tables import SPEED, TIME_SHARES, make_tables

SHARES = {"compute": "compute", "exchange": "exchange", "reduction": "reduce", "data": "data"}
QUANTITIES = (
    ("Peak memory of a rank, GiB", "peak_memory_bytes", 2.0**-30),
    ("Seconds of an epoch", "seconds", 1.0),
    ("Edges per second", "edges_per_second", 1.0),
)


def cost_page(run: Run, scaling: Scaling) -> Sheet:
    """Makes the page of time and memory, by epoch and in tables."""
    page = Sheet()
    page.heading("What the training took", 11)
    page.space(4)
    page.plots([plot for plot in _plots(run) if plot.filled], PLOTS)
    page.space(8)
    for table in make_tables([run], scaling):
        if table.title in (SPEED, TIME_SHARES, ROUTES):
            add_table(page, table)
    return page


def _plots(run: Run) -> Iterator[Plot]:
    shares = [(epoch.number, epoch.shares) for epoch in run.epochs if epoch.shares]
    lines = [
        curve(what, [(number, 100 * getattr(each, key)) for number, each in shares], colour)
        for colour, (what, key) in enumerate(SHARES.items())
    ]
    yield Plot("Where the time goes, %", "epoch", lines, by_whole_numbers(lines))
    for title, quantity, scale in QUANTITIES:
        values = [(epoch.number, scale * getattr(epoch, quantity)) for epoch in run.epochs]
        yield Plot(title, "epoch", [line := curve(title, values, 0)], by_whole_numbers([line]))
