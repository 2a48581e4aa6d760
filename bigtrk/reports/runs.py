"""The report of training runs: speed, shares of time, losses, metrics, norms, routes, spikes and
evaluations of one or several side by side.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, median
from typing import Any

from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.metrics import StepRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import figures
from bigtrk.reports.document import Curve, Document, Number, Plot, Plots, Table
from bigtrk.reports.evaluation import (
    evaluation_numbers,
    evaluation_plots,
    evaluation_tables,
    evaluation_verdict,
    named_evaluations,
)
from bigtrk.reports.facts import engine_name, headers, section, sentence
from bigtrk.reports.metrics import (
    METRIC_COLUMNS,
    METRICS,
    PAPER,
    edge_numbers,
    metric_cells,
    with_interval,
)
from bigtrk.reports.scaling import (
    ROOFLINE_RULE,
    SPEEDUP_RULE,
    TIME_SHARES,
    TIME_SHARES_NOTE,
    TIMING_RULE,
    Scaling,
    ScalingRow,
    Timing,
    achieved,
    compare,
    shares_plot,
    time_limit,
)

MOST_SENTENCES = 3
MOST_NAMED = {"routes": 20, "spikes": 10}  # that a table names; the JSON summary names all
ROUTES_NOTE = (
    "Training events by route: whole on one rank, or in sectors on as many ranks or fewer. "
    "Micro-steps: events, or shares of them, that a rank has one after another in a step, mean "
    "over steps. Imbalance: predicted, the most loaded rank over the mean; mean and largest over "
    "steps."
)
NORMS_NOTE = (
    "Euclidean norms: of gradients before clipping, of weights before the update, at every "
    "training.norms_every-th step."
)
SPIKES_NOTE = (
    "Steps with a loss far above that of recent steps, or a loss or gradients that are not "
    "finite: left out (skip), or left out of the epoch trained again (roll_back)."
)
EMBEDDING_NOTE = (
    "Pairs of hits within the smallest radius that keeps so many of the target edges of all "
    "validation events; edges per event, and the share of all true edges among them."
)


def runs_report(runs: Sequence[Run]) -> Document:
    """Makes the report of runs."""
    scaling, names = compare(runs), labels(runs)
    few = len(runs) <= MOST_SENTENCES
    lead = f"{len(runs)} runs side by side; where they differ is said below the tables."
    numbers, verdict = [], []
    for name, run, timing in zip(names, runs, scaling.timings, strict=True):
        newest = newest_evaluation(run)
        numbers.append((name, [*_results(run), *_speed_numbers(run, timing)]))
        own = [*(evaluation_verdict(newest) if newest else ()), *time_limit(timing)]
        verdict += [f"{name}: {each}" if len(runs) > 1 else each for each in own]
    evaluated = named_evaluations(runs)
    return Document(
        title=f"bigtrk report: {', '.join(names) if few else f'{len(runs)} runs'}",
        lead=" ".join(map(sentence, runs)) if few else lead,
        numbers=numbers,
        verdict=verdict,
        parts=[
            Plots("Training", [*_plots(runs), *_speedup_plots(scaling)]),
            *(part for each in evaluated for part in evaluation_plots(*each)),
            *_tables(runs, scaling),
            *evaluation_tables([(name, record) for name, record, _ in evaluated]),
            *headers(runs),
        ],
    )


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns records, epochs, evaluations and comparison of `runs`, JSON-able (NaN is None)."""
    scaling = compare(runs)
    found = zip(runs, scaling.timings, scaling.rows, strict=True)
    summary: dict[str, Any] = finite(
        {
            "rules": [TIMING_RULE, SPEEDUP_RULE],
            "notes": list(scaling.notes),
            "runs": [_entry(run, timing, row) for run, timing, row in found],
        }
    )
    return summary


def _entry(run: Run, timing: Timing, row: ScalingRow) -> dict[str, Any]:
    on_gpus = achieved(run, timing)
    return {
        "run": row.run,
        "folder": str(run.folder),
        **run.record.model_dump(mode="json"),
        "steps": len(run.steps),
        "routes": routes(run),
        "micro_steps_per_step": _mean_of_steps(run, "micro_steps"),
        "imbalance_of_steps": _imbalance(run),
        "norms": {group: asdict(found) for group, found in norms(run).items()},
        "spikes": [step.step for step in spikes(run)],
        "epochs": [epoch.model_dump(mode="json") for epoch in run.epochs],
        "timing": {**asdict(timing), "shares": timing.shares and timing.shares.model_dump()},
        "achieved": on_gpus and asdict(on_gpus),
        "comparison": {
            "baseline": row.baseline,
            "speedup": row.speedup,
            "parallel_efficiency": row.efficiency,
        },
        "best": run.best and run.best.model_dump(mode="json"),
        "evaluations": [record.model_dump(mode="json") for record in run.evaluations],
    }


def finite(value: Any) -> Any:
    """Replaces NaN and infinity, which JSON does not know, by None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def newest_evaluation(run: Run) -> EvaluationRecord | None:
    """Returns the evaluation that was made last, if any was."""
    return max(run.evaluations, key=lambda record: record.made, default=None)


def _results(run: Run) -> list[Number]:
    """Lists the numbers of the newest evaluation, or else of the last validation."""
    if newest := newest_evaluation(run):
        return evaluation_numbers(newest)
    validated = [epoch.validation for epoch in run.epochs if epoch.validation]
    return edge_numbers(validated[-1]) if validated else []


def _speed_numbers(run: Run, timing: Timing) -> Iterator[Number]:
    if timing.edges_per_second is not None:
        rates = [epoch.edges_per_second for epoch in run.epochs[1:] or run.epochs]
        spread = f"{figures.rate(min(rates))} to {figures.rate(max(rates))}; by epochs"
        yield Number("edges/s", figures.rate(timing.edges_per_second), spread)
    if timing.peak_memory_bytes is not None:
        yield Number("peak memory", figures.memory(timing.peak_memory_bytes))


def _plots(runs: Sequence[Run]) -> Iterator[Plot]:
    """Makes plots of losses, learning rates and norms by step, of validation metrics by epoch, and
    of the edges of an event within the radius of an embedding that keeps so many target edges.
    """
    yield _by_step("Training loss", runs, lambda step: step.loss)
    yield _by_step("Learning rate", runs, lambda step: step.lr)
    for title, kind in (("Norm of the gradient", "gradient"), ("Norm of the weights", "weight")):
        yield _by_step(title, runs, partial(_norm_of_all, kind))
    for title, metric, scale in METRICS:
        lines = []
        for number, (name, run) in enumerate(zip(labels(runs), runs, strict=True)):
            found = [
                (epoch.number, with_interval(epoch.validation, metric)) for epoch in run.epochs
            ]
            rows = [(at, *(scale * end for end in ends)) for at, ends in found if ends]
            lines.append(Curve(name, rows, number))
        yield Plot(title, ("epoch",), lines, whole=True)
    lines = []
    for name, run in zip(labels(runs), runs, strict=True):
        known = [(epoch.number, epoch.embedding.at) for epoch in run.epochs if epoch.embedding]
        for kept in dict.fromkeys(kept for _, at in known for kept in at):
            rows = [(number, at[kept].edges) for number, at in known if kept in at]
            lines.append(Curve(f"{name}, {kept} % of target edges kept", rows, len(lines)))
    title = "Neighbours in the embedding: edges of an event"
    yield Plot(title, ("epoch",), lines, y_axis="log", whole=True)


def _by_step(title: str, runs: Sequence[Run], value: Callable[[StepRecord], float | None]) -> Plot:
    lines = []
    for number, (name, run) in enumerate(zip(labels(runs), runs, strict=True)):
        rows = [(step.step, y) for step in run.steps if (y := value(step)) is not None]
        lines.append(Curve(name, rows, number))
    return Plot(title, ("step",), lines)


def _norm_of_all(kind: str, step: StepRecord) -> float | None:
    """Returns the norm of all parts of the model together; None if one is not known."""
    squares = [None if x is None else x * x for x in getattr(step.norms, kind, {}).values()]
    return None if not squares or None in squares else math.sqrt(sum(filter(None, squares)))


def _speedup_plots(scaling: Scaling) -> Iterator[Plot]:
    """Makes each run's speed-up a point in the run's colour, beside that of ideal scaling."""
    if not scaling.compares:
        return
    points = [
        Curve(row.run, [] if row.speedup is None else [(row.ranks, row.speedup)], number)
        for number, row in enumerate(scaling.rows)
    ]
    ranks = {row.run: row.ranks for row in scaling.rows}
    starts = sorted({ranks[row.baseline] for row in scaling.rows if row.baseline})
    most = max(ranks.values())
    ideal = [Curve("ideal", [(n, 1.0), (most, most / n)], style="guide") for n in starts]
    yield Plot("Speed-up (dashed: ideal)", ("ranks",), [*points, *ideal], whole=True)


def _tables(runs: Sequence[Run], scaling: Scaling) -> Iterator[Table]:
    """Makes all tables that these runs can fill, in reading order."""
    yield _speed(runs, scaling)
    yield _time_shares(scaling)
    yield _routes(runs)
    if len(runs) > 1:
        yield _last_epochs(runs)
    named = [*zip(labels(runs), runs, strict=True)]
    yield from (_epochs(name, run) for name, run in named)
    tables = [*(_averages(name, run) for name, run in named)]
    tables += [*(embedding_table(name, run) for name, run in named), _norms(named), _spikes(named)]
    yield from (table for table in tables if table.rows)


def _speed(runs: Sequence[Run], scaling: Scaling) -> Table:
    reached = [achieved(run, timing) for run, timing in zip(runs, scaling.timings, strict=True)]
    columns = ["run", "engine", "ranks", "events", "edges", "edges/s", "epoch s", "batch s"]
    columns += ["peak memory", *(("speed-up", "par. eff. %") if scaling.compares else ())]
    columns += ("MFU %", "bandwidth %") if any(reached) else ()
    rows = []
    for run, timing, row, gpus in zip(runs, scaling.timings, scaling.rows, reached, strict=True):
        cells = [
            row.run,
            engine_name(run.record),
            str(row.ranks),
            figures.count(run.record.data.train_events),
            figures.count(run.record.data.edges),
            figures.rate(timing.edges_per_second),
            figures.seconds(timing.epoch_seconds),
            figures.seconds(timing.batch_seconds),
            figures.memory(timing.peak_memory_bytes),
        ]
        if scaling.compares:
            cells += [figures.decimal(row.speedup), figures.share(row.efficiency)]
        if any(reached):
            cells += map(figures.share, (gpus.mfu, gpus.bandwidth) if gpus else (None, None))
        rows.append(tuple(cells))
    rules = [TIMING_RULE, *([SPEEDUP_RULE] if scaling.compares else [])]
    rules += [ROOFLINE_RULE] if any(reached) else []
    return Table("Speed", tuple(columns), tuple(rows), (*rules, *scaling.notes), text_columns=2)


def _time_shares(scaling: Scaling) -> Table:
    rows, named = [], []
    for row, timing in zip(scaling.rows, scaling.timings, strict=True):
        x = timing.shares
        parts = (x.exchange, x.compute, x.reduce, x.data) if x else [None] * 4
        cells = [*map(figures.share, parts), figures.decimal(timing.imbalance)]
        rows.append((row.run, str(row.ranks), *cells))
        named.append((row.run, x))
    columns = ("run", "ranks", "exchange %", "compute %", "reduction %", "data %", "imbalance")
    notes = (TIME_SHARES_NOTE,)
    return Table(TIME_SHARES, columns, tuple(rows), notes, plot=shares_plot(named))


def _last_epochs(runs: Sequence[Run]) -> Table:
    rows = tuple(
        (
            name,
            str(run.record.world_size),
            str(epoch.number),
            *metric_cells(epoch.validation),
            figures.seconds(epoch.seconds),
            figures.seconds(epoch.batch_seconds),
        )
        for name, run in zip(labels(runs), runs, strict=True)
        for epoch in run.epochs[-1:]
    )
    columns = ("run", "ranks", "epoch", *METRIC_COLUMNS, "epoch s", "batch s")
    return Table("Validation after the last epoch", columns, rows, (PAPER,))


def _epochs(name: str, run: Run) -> Table:
    rows = tuple(
        (
            str(epoch.number),
            figures.loss(epoch.train_loss),
            *metric_cells(epoch.validation),
            figures.seconds(epoch.seconds),
            figures.seconds(epoch.batch_seconds),
        )
        for epoch in run.epochs
    )
    columns = ("epoch", "train loss", *METRIC_COLUMNS, "epoch s", "batch s")
    note = PAPER if rows else f"No epoch has finished yet; steps recorded: {len(run.steps)}."
    lacking = [
        f"Epoch {epoch.number}: {epoch.validation.undefined}."
        for epoch in run.epochs[-1:]
        if epoch.validation and epoch.validation.undefined
    ]
    return Table(f"Epochs of {name}", columns, rows, (note, *lacking), text_columns=0)


def _averages(name: str, run: Run) -> Table:
    """Makes the table of a run's averaged weights, if it keeps any."""
    rows = tuple(
        (str(epoch.number), *metric_cells(epoch.average.validation))
        for epoch in run.epochs
        if epoch.average and epoch.average.validation
    )
    columns = ("epoch", *METRIC_COLUMNS)
    return Table(f"Averaged weights of {name}", columns, rows, (PAPER,), text_columns=0)


def embedding_table(name: str, run: Run) -> Table:
    """Makes the table of a run that trains an embedding and has validated it."""
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
    title = f"Neighbours in the embedding of {name}"
    return Table(title, columns, rows, (EMBEDDING_NOTE,), text_columns=0)


def routes(run: Run) -> dict[str, int]:
    """Counts the sectors of each event in the last epoch that has it, by the event's name."""
    return {name: parts for step in run.steps for name, parts in step.routes.items()}


def _mean_of_steps(run: Run, quantity: str) -> float | None:
    known = [x for step in run.steps if (x := getattr(step, quantity)) is not None]
    return fmean(known) if known else None


def _imbalance(run: Run) -> tuple[float, float] | None:
    """Returns the predicted imbalance of a step, mean and largest; None where no step says it."""
    known = [step.imbalance for step in run.steps if step.imbalance is not None]
    return (fmean(known), max(known)) if known else None


def _routes(runs: Sequence[Run]) -> Table:
    """Makes a row per run of events by route and micro-steps; notes name the events in sectors."""
    found = [routes(run) for run in runs]
    ways = sorted({1, *(way for own in found for way in own.values())})
    named = ("whole" if k == 1 else f"{k} sectors" for k in ways)
    columns = ("run", "nodes", "edges", *named, "micro-steps", "imbalance", "largest")
    rows, notes = [], [ROUTES_NOTE]
    for name, run, own in zip(labels(runs), runs, found, strict=True):
        counts = Counter(own.values())
        cells = [figures.count(run.record.data.nodes), figures.count(run.record.data.edges)]
        cells += [figures.count(counts.get(way)) for way in ways]
        cells.append(figures.decimal(_mean_of_steps(run, "micro_steps")))
        cells += map(figures.decimal, _imbalance(run) or (None, None))
        rows.append((name, *cells))
        if cut := [f"{event} in {parts}" for event, parts in sorted(own.items()) if parts > 1]:
            notes.append(f"{name}: {_first(cut, 'routes', ', ')}.")
    return Table("Routes", columns, tuple(rows), tuple(notes))


def _first(texts: Sequence[str], kind: str, between: str) -> str:
    """Joins the first texts, and says how many more there are."""
    most = MOST_NAMED[kind]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{between.join(texts[:most])}{more}"


@dataclass(frozen=True)
class GroupNorms:
    """Norms over the steps that recorded them: the gradient's median and largest norm, the step of
    the latter, the weights' first and last norm.
    """

    median: float | None
    largest: float | None
    at_step: int | None
    first: float | None
    last: float | None


def norms(run: Run) -> dict[str, GroupNorms]:
    """Returns norms by part, in the model's order; empty where no step recorded any."""
    known = [(step.step, step.norms) for step in run.steps if step.norms]
    found = {}
    for part in known[-1][1].weight if known else ():
        gradients = [(x, step) for step, n in known if (x := n.gradient.get(part)) is not None]
        weights = [x for _, n in known if (x := n.weight.get(part)) is not None]
        found[part] = GroupNorms(None, None, None, None, None)
        if gradients and weights:
            middle = median(x for x, _ in gradients)
            found[part] = GroupNorms(middle, *max(gradients), weights[0], weights[-1])
    return found


def _norms(named: Sequence[tuple[str, Run]]) -> Table:
    rows = tuple(
        (
            name,
            part,
            figures.norm(found.median),
            figures.norm(found.largest),
            figures.count(found.at_step),
            figures.norm(found.first),
            figures.norm(found.last),
        )
        for name, run in named
        for part, found in norms(run).items()
    )
    columns = ("run", "part", "gradient median", "largest", "at step", "weights first", "last")
    return Table("Norms", columns, rows, (NORMS_NOTE,), text_columns=2)


def spikes(run: Run) -> list[StepRecord]:
    """Lists the steps that the spike guard left out, ascending."""
    return [step for step in run.steps if step.spike]


def _spikes(named: Sequence[tuple[str, Run]]) -> Table:
    """Makes a row per guarded run; notes name the steps."""
    rows, notes = [], [SPIKES_NOTE]
    for name, run in named:
        guard = section(run.record, "training").get("spike_guard")
        if not isinstance(guard, str) or guard in ("", "off"):
            continue
        found = spikes(run)
        rows.append((name, guard, figures.count(len(run.steps)), figures.count(len(found))))
        losses = ("not finite" if step.loss is None else figures.loss(step.loss) for step in found)
        told = [f"step {step.step}, {loss}" for step, loss in zip(found, losses, strict=True)]
        if told:
            notes.append(f"{name}: {_first(told, 'spikes', '; ')}.")
    columns = ("run", "guard", "steps", "spikes")
    return Table("Loss spikes", columns, tuple(rows), tuple(notes), text_columns=2)
