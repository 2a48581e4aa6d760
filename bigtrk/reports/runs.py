"""The report of training runs: speed, shares of time, losses, metrics, sectors and evaluations."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.metrics import EpochRecord, StepRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import evaluation, facts, figures
from bigtrk.reports.document import Curve, Document, Number, Plot, Plots, Table, table_of
from bigtrk.reports.metrics import METRICS, PAPER, edge_numbers, metric_cells, with_interval

MOST_SENTENCES = 3
MOST_NAMED = 20  # spikes of a note; the JSON summary names all
ROUTES_NOTE = (
    "Training events by route: whole on one rank, or in sectors. Micro-steps: events, or shares of "
    "them, that a rank takes one after another in a step (mean). Imbalance: the most loaded rank "
    "over the mean, predicted; mean and largest over steps."
)
EMBEDDING_NOTE = (
    "Pairs of hits within the smallest radius that keeps this share of the validation events' "
    "target edges; edges per event, and the share of all true edges among them."
)
Named = Sequence[tuple[str, Run]]


def runs_report(runs: Sequence[Run]) -> Document:
    """Makes the report of one run or of several side by side."""
    named, few = [*zip(labels(runs), runs, strict=True)], len(runs) <= MOST_SENTENCES
    timed = [(name, run, facts.time_run(run)) for name, run in named]
    many = f"{len(runs)} runs"
    names = ", ".join(name for name, _ in named) if few else many
    lead = f"{many} side by side; their differences are listed below the tables."
    verdict = []
    for name, run, timing in timed:
        newest = newest_evaluation(run)
        own = evaluation.evaluation_verdict(newest, run) if newest else []
        limits = [*own, *facts.time_limit(timing)]
        verdict += [f"{name}: {each}" if len(runs) > 1 else each for each in limits]
    evaluated = evaluation.named_evaluations(runs)
    return Document(
        title=f"bigtrk report: {names}",
        lead=" ".join(map(facts.sentence, runs)) if few else lead,
        numbers=[(name, [*_numbers(run, timing)]) for name, run, timing in timed],
        verdict=verdict,
        parts=[
            Plots("Training", [*_plots(named)]),
            *(part for each in evaluated for part in evaluation.evaluation_plots(*each)),
            *_tables(timed),
            *evaluation.evaluation_tables(evaluated),
            *facts.headers(runs),
        ],
    )


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns records, epochs and evaluations of `runs`, for JSON (NaN becomes None)."""
    named = [*zip(labels(runs), runs, strict=True)]
    entries = [
        {
            "run": name,
            "folder": str(run.folder),
            **run.record.model_dump(mode="json"),
            "steps": len(run.steps),
            "routes": routes(run),
            "spikes": [step.step for step in spikes(run)],
            "epochs": [epoch.model_dump(mode="json") for epoch in run.epochs],
            "timing": facts.time_run(run).model_dump(),
            "best": run.best and run.best.model_dump(mode="json"),
            "evaluations": [record.model_dump(mode="json") for record in run.evaluations],
        }
        for name, run in named
    ]
    rules, notes = [facts.TIMING_RULE], [*_warm_up(named)]
    summary: dict[str, Any] = finite({"rules": rules, "notes": notes, "runs": entries})
    return summary


def finite(value: Any) -> Any:
    """Returns the value with NaN and infinity replaced by None, since JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def newest_evaluation(run: Run) -> EvaluationRecord | None:
    """Returns the last evaluation of a run; None if there is none."""
    return max(run.evaluations, key=lambda record: record.made, default=None)


def routes(run: Run) -> dict[str, int]:
    """Returns each event's number of sectors, in the last epoch that trained it, by event name."""
    return {name: parts for step in run.steps for name, parts in step.routes.items()}


def spikes(run: Run) -> list[StepRecord]:
    """Returns the steps that the spike guard left out, ascending."""
    return [step for step in run.steps if step.spike]


def _warm_up(named: Named) -> Iterator[str]:
    for name, run in named:
        if len(run.epochs) == 1:
            yield f"{name} has one finished epoch: its figures include the warm-up."
        if not run.epochs:
            yield f"{name} has no finished epoch yet: it has no figures."


def _numbers(run: Run, timing: facts.Timing) -> Iterator[Number]:
    validated = [epoch.validation for epoch in run.epochs if epoch.validation]
    if newest := newest_evaluation(run):
        yield from evaluation.evaluation_numbers(newest)
    elif validated:
        yield from edge_numbers(validated[-1])
    if timing.edges_per_second is not None:
        rates = [epoch.edges_per_second for epoch in run.epochs[1:] or run.epochs]
        spread = f"{figures.rate(min(rates))} to {figures.rate(max(rates))}; by epochs"
        yield Number("edges/s", figures.rate(timing.edges_per_second), spread)
    if timing.peak_memory_bytes is not None:
        yield Number("peak memory", figures.memory(timing.peak_memory_bytes))


def _plots(named: Named) -> Iterator[Plot]:
    values: dict[str, Callable[[StepRecord], float | None]] = {
        "Training loss": lambda step: step.loss,
        "Learning rate": lambda step: step.lr,
        "Norm of the gradient": lambda step: _norm(step.norms.gradient if step.norms else {}),
        "Norm of the weights": lambda step: _norm(step.norms.weight if step.norms else {}),
    }
    for title, value in values.items():
        steps = [
            Curve(name, [(x.step, y) for x in run.steps if (y := value(x)) is not None], number)
            for number, (name, run) in enumerate(named)
        ]
        yield Plot(title, ("step",), steps)
    for metric in sorted(METRICS, key=lambda name: name != "loss"):
        (title, _, scale), lines = METRICS[metric], []
        for number, (name, run) in enumerate(named):
            found = [(x.number, *with_interval(x.validation, metric, scale)) for x in run.epochs]
            lines.append(Curve(name, [row for row in found if len(row) > 1], number))
        yield Plot(title, ("epoch",), lines, whole=True)


def _norm(parts: Mapping[str, float | None]) -> float | None:
    """Returns the norm of the whole model from the norms of its parts; None if one is unknown."""
    known = [part for part in parts.values() if part is not None]
    return math.hypot(*known) if parts and len(known) == len(parts) else None


def _tables(timed: Sequence[tuple[str, Run, facts.Timing]]) -> Iterator[Table]:
    named = [(name, run) for name, run, _ in timed]
    heads = [{"run": name, "ranks": str(run.record.world_size)} for name, run in named]
    speed = [
        {
            "run": name,
            "engine": facts.engine_name(run.record),
            "ranks": str(run.record.world_size),
            "events": figures.count(run.record.data.train_events),
            "edges": figures.count(run.record.data.edges),
            "edges/s": figures.rate(timing.edges_per_second),
            "epoch s": figures.seconds(timing.epoch_seconds),
            "batch s": figures.seconds(timing.batch_seconds),
            "peak memory": figures.memory(timing.peak_memory_bytes),
        }
        for name, run, timing in timed
    ]
    yield table_of("Speed", speed, facts.TIMING_RULE, *_warm_up(named), text_columns=2)
    shares = [
        {**head, **facts.share_cells(x.shares), "imbalance": figures.decimal(x.imbalance)}
        for head, (_, _, x) in zip(heads, timed, strict=True)
    ]
    plot = facts.shares_plot((name, timing.shares) for name, _, timing in timed)
    yield table_of(facts.TIME_SHARES, shares, facts.TIME_SHARES_NOTE, plot=plot)
    yield _routes(named)
    if len(named) > 1:
        last = [
            head | _epoch_cells(epoch)
            for head, (_, run) in zip(heads, named, strict=True)
            for epoch in run.epochs[-1:]
        ]
        yield table_of("Validation after the last epoch", last, PAPER)
    for name, run in named:
        yield _epochs(name, run)
    tables = [embedding_table(name, run) for name, run in named]
    yield from (table for table in tables if table.rows)


def _epoch_cells(epoch: EpochRecord) -> dict[str, str]:
    return {
        "epoch": str(epoch.number),
        "train loss": figures.loss(epoch.train_loss),
        **metric_cells(epoch.validation),
        "epoch s": figures.seconds(epoch.seconds),
        "batch s": figures.seconds(epoch.batch_seconds),
    }


def _epochs(name: str, run: Run) -> Table:
    """Makes a table with a row per epoch, and one for its averaged weights if there are any."""
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
    if left_out := spikes(run):
        told = [
            f"step {x.step}, {'not finite' if x.loss is None else figures.loss(x.loss)}"
            for x in left_out
        ]
        more = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
        notes.append(f"Left out as spikes: {'; '.join(told[:MOST_NAMED])}{more}.")
    return table_of(f"Epochs of {name}", rows, *notes, text_columns=0)


def embedding_table(name: str, run: Run) -> Table:
    """Makes the table of an embedding's validations; without rows for other runs."""
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


def _routes(named: Named) -> Table:
    found = [Counter(routes(run).values()) for _, run in named]
    ways, rows = sorted({1, *(way for counts in found for way in counts)}), []
    for (name, run), counts in zip(named, found, strict=True):
        micro_steps = [x.micro_steps for x in run.steps if x.micro_steps is not None]
        imbalance = [x.imbalance for x in run.steps if x.imbalance is not None]
        by_way = {("whole" if n == 1 else f"{n} sectors"): counts.get(n) for n in ways}
        counted = {"nodes": run.record.data.nodes, "edges": run.record.data.edges} | by_way
        cells = {"run": name} | {column: figures.count(n) for column, n in counted.items()}
        cells["micro-steps"] = figures.decimal(fmean(micro_steps) if micro_steps else None)
        cells["imbalance"] = figures.decimal(fmean(imbalance) if imbalance else None)
        cells["largest"] = figures.decimal(max(imbalance, default=None))
        rows.append(cells)
    return table_of("Routes", rows, ROUTES_NOTE)
