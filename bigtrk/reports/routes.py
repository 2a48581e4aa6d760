"""How a run's events were routed: whole, or in how many sectors."""

from collections import Counter
from collections.abc import Sequence

from bigtrk.reports import figures
from bigtrk.reports.layout import Table
from bigtrk.reports.run_folder import Run, labels

# Events in sectors that a table names; the JSON summary names all.
_NAMED = 20


def routes(run: Run) -> dict[str, int]:
    """In how many sectors each event was trained in the last epoch that has it, by name."""
    return {name: parts for step in run.steps for name, parts in step.routes.items()}


def routes_table(runs: Sequence[Run]) -> Table:
    """Events by route, a line per run; then a line per event in sectors, and the others counted."""
    found = [Counter(routes(run).values()) for run in runs]
    ways = sorted({1, *(way for counts in found for way in counts)})
    columns = ("run", "nodes", "edges", *("whole" if k == 1 else f"{k} sectors" for k in ways))
    rows = [
        (
            name,
            figures.count(run.record.data.nodes),
            figures.count(run.record.data.edges),
            *(figures.count(counts.get(way)) for way in ways),
        )
        for name, run, counts in zip(labels(runs), runs, found, strict=True)
    ]
    note = "Training events by route: whole on one rank, or in sectors on as many ranks."
    named = [_names(label, run) for label, run in zip(labels(runs), runs, strict=True)]
    return Table("Routes", columns, tuple(rows), (note, *filter(None, named)))


def _names(label: str, run: Run) -> str:
    """The events of a run that were trained in sectors."""
    cut = sorted((name, parts) for name, parts in routes(run).items() if parts > 1)
    if not cut:
        return ""
    more = f" and {len(cut) - _NAMED} more" if len(cut) > _NAMED else ""
    return f"{label}: {', '.join(f'{name} in {parts}' for name, parts in cut[:_NAMED])}{more}."
