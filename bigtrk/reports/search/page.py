"""The page of a search, finished or not."""

import os
from html import escape
from pathlib import Path
from urllib.parse import quote

from bigtrk.records.search import SearchFolder, Trial
from bigtrk.reports.elements.charts import drawn
from bigtrk.reports.elements.first_screen import first_screen
from bigtrk.reports.elements.page_parts import header, table_section, write_page
from bigtrk.reports.search.facts import (
    best_commands,
    search_facts,
    search_headlines,
    search_sentence,
    search_verdict,
)
from bigtrk.reports.search.lineage import LINEAGE_RULE
from bigtrk.reports.search.metric import Metric, best_trial
from bigtrk.reports.search.plots import search_plots
from bigtrk.reports.search.tables import ranked, search_tables


def write_search_html(search: SearchFolder, path: Path) -> None:
    """Writes the page of a search to `path`, atomically. Its trials are links to their folders."""
    name = search.folder.resolve().name
    metric = Metric(search.record.metric, search.record.minimises)
    best = best_trial(search, metric)
    trials, *others = search_tables(search, metric, best)
    rule = f"<p>{escape(LINEAGE_RULE)}</p>" if search.record.population else ""
    write_page(
        path,
        title=f"bigtrk search: {name}",
        first=first_screen(
            search_sentence(search),
            [(name, search_headlines(search, metric, best))],
            search_verdict(search, metric, best),
        )
        + "".join(
            f"<p>{escape(told)} <code>{escape(command)}</code></p>"
            for told, command in best_commands(search, best)
        ),
        plots=map(drawn, search_plots(search, metric)),
        tables=rule
        + table_section(trials, links=[_link(trial, path) for trial in ranked(search)])
        + "".join(map(table_section, others))
        + header(*search_facts(search)),
    )


def _link(trial: Trial, page: Path) -> str:
    """Returns the address of a trial's folder as seen from a page."""
    way = os.path.relpath(trial.folder.resolve(), page.resolve().parent)
    return quote(os.fsencode(way)) + "/"
