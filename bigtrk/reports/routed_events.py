"""The routes of a run's events: whole, or in so many sectors."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table

ROUTES = "Routes"
# Number of events in sectors that a table names; the JSON summary names all.
_NAMED = 20


def routes(run: Run) -> dict[str, int]:
    """Counts the sectors of each event in the last epoch that has it, by the event's name."""
    return {name: parts for step in run.steps for name, parts in step.routes.items()}


def micro_steps(run: Run) -> float | None:
    """Returns the mean number of micro-steps in a step; None where no step says it."""
    known = [step.micro_steps for step in run.steps if step.micro_steps is not None]
    return fmean(known) if known else None


def imbalance(run: Run) -> tuple[float, float] | None:
    """Returns the predicted imbalance of a step, mean and largest; None where no step says it."""
    known = [step.imbalance for step in run.steps if step.imbalance is not None]
    return (fmean(known), max(known)) if known else None


def routes_table(runs: Sequence[Run]) -> Table:
    """Makes a row per run of events by route and micro-steps; notes name the events in sectors."""
    found = [Counter(routes(run).values()) for run in runs]
    ways = sorted({1, *(way for counts in found for way in counts)})
    named = ("whole" if k == 1 else f"{k} sectors" for k in ways)
    columns = ("run", "nodes", "edges", *named, "micro-steps", "imbalance", "largest")
    rows = [
        (
            name,
            figures.count(run.record.data.nodes),
            figures.count(run.record.data.edges),
            *(figures.count(counts.get(way)) for way in ways),
            figures.decimal(micro_steps(run)),
            *(figures.decimal(value) for value in imbalance(run) or (None, None)),
        )
        for name, run, counts in zip(labels(runs), runs, found, strict=True)
    ]
    note = (
        "Training events by route: whole on one rank, or in sectors on as many ranks or fewer. "
        "Micro-steps: events, or shares of them, that a rank has one after another in a step, mean "
        "over steps. "
        "Imbalance: predicted, the most loaded rank over the mean; mean and largest over steps."
    )
    cut = [_names(label, run) for label, run in zip(labels(runs), runs, strict=True)]
    return Table(ROUTES, columns, tuple(rows), (note, *filter(None, cut)))


def _names(label: str, run: Run) -> str:
    """Names the events of a run that were trained in sectors."""
    cut = sorted((name, parts) for name, parts in routes(run).items() if parts > 1)
    if not cut:
        return ""
    more = f" and {len(cut) - _NAMED} more" if len(cut) > _NAMED else ""
    return f"{label}: {', '.join(f'{name} in {parts}' for name, parts in cut[:_NAMED])}{more}."
