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
from bigtrk.records.metrics import EpochRecord, StepRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import figures
from bigtrk.reports.document import Curve, Document, Number, Plot, Plots, Table, table_of
from bigtrk.reports.evaluation import (
    evaluation_numbers,
    evaluation_plots,
    evaluation_tables,
    evaluation_verdict,
    named_evaluations,
)
from bigtrk.reports.facts import engine_name, headers, section, sentence
from bigtrk.reports.metrics import (
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
    share_cells,
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
    named = [*zip(labels(runs), runs, strict=True)]
    yield _speed(runs, scaling)
    yield _time_shares(scaling)
    yield _routes(named)
    if len(runs) > 1:
        last = [(name, run, epoch) for name, run in named for epoch in run.epochs[-1:]]
        rows = (
            {"run": name, "ranks": str(run.record.world_size), **_epoch_cells(epoch)}
            for name, run, epoch in last
        )
        yield table_of("Validation after the last epoch", rows, PAPER)
    for name, run in named:
        yield _epochs(name, run)
    tables = [*(embedding_table(name, run) for name, run in named), _norms(named), _spikes(named)]
    yield from (table for table in tables if table.rows)


def _speed(runs: Sequence[Run], scaling: Scaling) -> Table:
    rows = []
    for run, timing, row in zip(runs, scaling.timings, scaling.rows, strict=True):
        cells = {
            "run": row.run,
            "engine": engine_name(run.record),
            "ranks": str(row.ranks),
            "events": figures.count(run.record.data.train_events),
            "edges": figures.count(run.record.data.edges),
            "edges/s": figures.rate(timing.edges_per_second),
            "epoch s": figures.seconds(timing.epoch_seconds),
            "batch s": figures.seconds(timing.batch_seconds),
            "peak memory": figures.memory(timing.peak_memory_bytes),
        }
        if scaling.compares:
            cells["speed-up"] = figures.decimal(row.speedup)
            cells["par. eff. %"] = figures.share(row.efficiency)
        if gpus := achieved(run, timing):
            cells["MFU %"] = figures.share(gpus.mfu)
            cells["bandwidth %"] = figures.share(gpus.bandwidth)
        rows.append(cells)
    rules = [TIMING_RULE, *([SPEEDUP_RULE] if scaling.compares else [])]
    rules += [ROOFLINE_RULE] if any("MFU %" in cells for cells in rows) else []
    return table_of("Speed", rows, *rules, *scaling.notes, text_columns=2)


def _time_shares(scaling: Scaling) -> Table:
    rows = [
        {
            "run": row.run,
            "ranks": str(row.ranks),
            **share_cells(timing.shares),
            "imbalance": figures.decimal(timing.imbalance),
        }
        for row, timing in zip(scaling.rows, scaling.timings, strict=True)
    ]
    named = zip((row.run for row in scaling.rows), scaling.timings, strict=True)
    plot = shares_plot((name, timing.shares) for name, timing in named)
    return table_of(TIME_SHARES, rows, TIME_SHARES_NOTE, plot=plot)


def _epoch_cells(epoch: EpochRecord) -> dict[str, str]:
    return {
        "epoch": str(epoch.number),
        "train loss": figures.loss(epoch.train_loss),
        **metric_cells(epoch.validation),
        "epoch s": figures.seconds(epoch.seconds),
        "batch s": figures.seconds(epoch.batch_seconds),
    }


def _epochs(name: str, run: Run) -> Table:
    """Makes a row per epoch, and one of its averaged weights where there are any."""
    rows: list[dict[str, str]] = []
    for epoch in run.epochs:
        rows.append(_epoch_cells(epoch))
        if epoch.average and epoch.average.validation:
            averaged = {"epoch": f"{epoch.number} averaged"}
            rows.append(averaged | metric_cells(epoch.average.validation))
    notes = [PAPER if rows else f"No epoch has finished yet; steps recorded: {len(run.steps)}."]
    last = run.epochs[-1] if run.epochs else None
    if last and last.validation and last.validation.undefined:
        notes.append(f"Epoch {last.number}: {last.validation.undefined}.")
    return table_of(f"Epochs of {name}", rows, *notes, text_columns=0)


def embedding_table(name: str, run: Run) -> Table:
    """Makes the table of a run that trains an embedding and has validated it."""
    rows = (
        {
            "epoch": str(epoch.number),
            "val. loss": figures.loss(epoch.embedding.loss),
            "target edges": f"{kept} %",
            "radius": figures.small(graph.radius),
            "edges": figures.count(graph.edges),
            "true edges %": figures.percent(graph.efficiency, 2),
        }
        for epoch in run.epochs
        if epoch.embedding
        for kept, graph in epoch.embedding.at.items()
    )
    title = f"Neighbours in the embedding of {name}"
    return table_of(title, rows, EMBEDDING_NOTE, text_columns=0)


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


def _routes(named: Sequence[tuple[str, Run]]) -> Table:
    """Makes a row per run of events by route and micro-steps; notes name the events in sectors."""
    found = [Counter(routes(run).values()) for _, run in named]
    ways = sorted({1, *(way for counts in found for way in counts)})
    rows, notes = [], [ROUTES_NOTE]
    for (name, run), counts in zip(named, found, strict=True):
        mean, largest = _imbalance(run) or (None, None)
        rows.append(
            {
                "run": name,
                "nodes": figures.count(run.record.data.nodes),
                "edges": figures.count(run.record.data.edges),
                **{
                    "whole" if way == 1 else f"{way} sectors": figures.count(counts.get(way))
                    for way in ways
                },
                "micro-steps": figures.decimal(_mean_of_steps(run, "micro_steps")),
                "imbalance": figures.decimal(mean),
                "largest": figures.decimal(largest),
            }
        )
        cut = [f"{event} in {parts}" for event, parts in sorted(routes(run).items()) if parts > 1]
        if cut:
            notes.append(f"{name}: {_first(cut, 'routes', ', ')}.")
    return table_of("Routes", rows, *notes)


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
    rows = (
        {
            "run": name,
            "part": part,
            "gradient median": figures.norm(found.median),
            "largest": figures.norm(found.largest),
            "at step": figures.count(found.at_step),
            "weights first": figures.norm(found.first),
            "last": figures.norm(found.last),
        }
        for name, run in named
        for part, found in norms(run).items()
    )
    return table_of("Norms", rows, NORMS_NOTE, text_columns=2)


def spikes(run: Run) -> list[StepRecord]:
    """Lists the steps that the spike guard left out, ascending."""
    return [step for step in run.steps if step.spike]


def _spikes(named: Sequence[tuple[str, Run]]) -> Table:
    """Makes a row per guarded run; notes name the steps."""
    rows, notes = [], [SPIKES_NOTE]
    for name, run in named:
        guard, found = section(run.record, "training").get("spike_guard"), spikes(run)
        if isinstance(guard, str) and guard not in ("", "off"):
            steps, left_out = figures.count(len(run.steps)), figures.count(len(found))
            rows.append({"run": name, "guard": guard, "steps": steps, "spikes": left_out})
            told = [
                f"step {x.step}, {'not finite' if x.loss is None else figures.loss(x.loss)}"
                for x in found
            ]
            notes += [f"{name}: {_first(told, 'spikes', '; ')}."] if told else []
    return table_of("Loss spikes", rows, *notes, text_columns=2)
