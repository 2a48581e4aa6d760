"""`bigtrk report SEARCH`: the summary for programs (JSON) and for people (terminal)."""

from typing import Any

from rich.console import Console

from bigtrk.records.search import SearchFolder
from bigtrk.reports.elements.layout import at_width, show_header, show_table
from bigtrk.reports.search.facts import best_commands, search_facts, search_verdict
from bigtrk.reports.search.metric import Metric, best_trial, state
from bigtrk.reports.search.tables import search_tables


def summarise_search(search: SearchFolder) -> dict[str, Any]:
    """Returns what was searched, the best trial and all trials, JSON-able."""
    metric = Metric(search.record.metric, search.record.minimises)
    best = best_trial(search, metric)
    return {
        "folder": str(search.folder),
        **search.record.model_dump(mode="json"),
        "best": best and best.record.number,
        "trials": [
            {
                **trial.record.model_dump(mode="json"),
                "folder": str(trial.folder),
                "state": state(trial),
                "value": metric.value(trial),
                "curve": [[epoch.number, value] for epoch, value in metric.by_epoch(trial)],
            }
            for trial in search.trials
        ],
        "rounds": [one.model_dump(mode="json") for one in search.rounds],
    }


def show_search(search: SearchFolder, console: Console) -> None:
    """Prints facts, the best trial, the commands that use it, and tables."""
    out = at_width(console)
    metric = Metric(search.record.metric, search.record.minimises)
    best = best_trial(search, metric)
    title, facts = search_facts(search)
    told = {"best": " ".join(search_verdict(search, metric, best))} if best else {}
    show_header(title, {**facts, **told, **dict(best_commands(search, best))}, out)
    for table in search_tables(search, metric, best):
        show_table(table, out)
