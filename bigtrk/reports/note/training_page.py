"""The first page of a note on a run: what was trained on what, how well, and what limits it."""

from collections.abc import Iterator

from bigtrk.records.run_folder import Run
from bigtrk.reports.elements.charts import Plot, by_whole_numbers
from bigtrk.reports.elements.first_screen import INTERVALS, OF
from bigtrk.reports.embedding import embedding_plot
from bigtrk.reports.facts import facts, sentence
from bigtrk.reports.headlines import run_headlines, run_verdicts
from bigtrk.reports.note.axes import DIM
from bigtrk.reports.note.sheet import Sheet
from bigtrk.reports.run_plots import (
    LEARNING_RATE,
    TRAINING_LOSS,
    VALIDATION_LOSS,
    metric_curve,
    run_plots,
)
from bigtrk.reports.scaling import Scaling

MOST_PLOTS = 4
LONGEST = 5  # lines of a paragraph


def training_page(run: Run, title: str, scaling: Scaling) -> Sheet:
    """Makes the page of what a page of the browser's has on its first screen, of the facts, and of
    curves of losses and rates.
    """
    page = Sheet()
    page.paragraph(title, 15, bold=True, most=2)
    page.space(4)
    page.paragraph(sentence(run), 9.5, most=LONGEST)
    page.space(6)
    [(_, numbers)] = run_headlines([run], scaling)
    page.numbers(numbers)
    if any(OF in number.basis for number in numbers):
        page.paragraph(INTERVALS, 6.5, colour=DIM, most=2)
    page.space(4)
    for each in run_verdicts([run], scaling):
        page.paragraph(each, 9.5, most=LONGEST)
        page.space(2)
    page.space(6)
    page.facts(facts(run))
    page.space(10)
    page.plots([plot for plot in _curves(run) if plot.filled][:MOST_PLOTS], page.left)
    return page


def _curves(run: Run) -> Iterator[Plot]:
    """Makes plots of losses and rates, those first that say most."""
    made = {plot.title: plot for plot in run_plots([run])}
    yield made[TRAINING_LOSS]
    yield made[VALIDATION_LOSS]
    rates = [
        metric_curve(metric, run, metric, 100.0, number)
        for number, metric in enumerate(("efficiency", "purity"))
    ]
    yield Plot("Edge efficiency and purity, %", "epoch", rates, by_whole_numbers(rates))
    yield embedding_plot([run])
    yield made[LEARNING_RATE]
