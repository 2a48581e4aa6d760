"""The report of scaling series, one or several side by side: a document, and JSON lines."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bigtrk.errors import InputError
from bigtrk.reports import figures
from bigtrk.reports.document import Curve, Document, Facts, Number, Plot, Plots, Table, table_of
from bigtrk.reports.facts import engine_name, facts
from bigtrk.reports.figures import INTERVALS, Estimate
from bigtrk.reports.metrics import COLUMNS, PAPER
from bigtrk.reports.runs import finite
from bigtrk.reports.scaling import (
    TIME_SHARES,
    TIME_SHARES_NOTE,
    share_cells,
    shares_plot,
    time_limit,
    time_run,
)
from bigtrk.studies.scaling.series import METRICS, Point, Series, points, read_series

CURVES = (
    ("Speed-up", "speedup", 1),
    ("Parallel efficiency, %", "efficiency", 100),
    ("Epoch, s", "epoch_seconds", 1),
)
KEY = "Bars: one standard error over repeats; grey: ideal."
SPEEDUP_RULES = {
    "strong": "Strong scaling: speed-up t1 / tN, parallel efficiency t1 / (N tN).",
    "weak": "Weak scaling: speed-up in events per second N t1 / tN, efficiency t1 / tN.",
}
TIME_RULE = (
    "t: seconds of an epoch's training; of each run the median over the epochs after the first, "
    "which warms up. t1: of the fewest ranks of the series, where N counts from these. "
    "±: standard error of the mean over repeats."
)
POWER_NOTE = (
    "Of an epoch's training, all ranks together. Utilisation: time that a kernel ran; memory in "
    "use of the accelerator's: means over samples (NVML). kWh: of what was read, accelerators and "
    "hosts (RAPL). The energy is a device's whole, whoever else uses it."
)

PREDICTION = (
    "predicted: an epoch by a measured step of the fewest ranks and the counted exchanges; no "
    "waiting is counted."
)


@dataclass(frozen=True)
class SeriesReport:
    """lines: an object per series and number of ranks, JSON-able."""

    document: Document
    lines: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """Returns `lines` as JSON lines."""
        return "".join(json.dumps(line, allow_nan=False) + "\n" for line in self.lines)


def series_report(folders: Sequence[Path]) -> SeriesReport:
    """Reads series, and reports them side by side.

    Raises:
        InputError: a folder holds no series or no finished epoch, or two series have one name.
    """
    every = [read_series(folder) for folder in folders]
    names = [series.name for series in every]
    if len(set(names)) < len(names):
        raise InputError(f"{', '.join(names)}: series of one name; rename a folder")
    by_series = {series.name: points(series) for series in every}
    found = [point for own in by_series.values() for point in own]
    headers = [Facts(f"Series {series.name}", _facts(series)) for series in every]
    last = [own[-1] for own in by_series.values()]
    document = Document(
        title=f"bigtrk scaling: {', '.join(names)}",
        lead=" ".join(
            f"{x.title}: {x.facts['model']}; {x.facts['scaling']}; {x.facts['engine']}, "
            f"{x.facts['machine']}."
            for x in headers
        ),
        numbers=[(f"{point.series}, {point.ranks} ranks", [*_numbers(point)]) for point in last],
        verdict=[
            f"{point.series}, {point.ranks} ranks: {limit}"
            for point in last
            for limit in time_limit(time_run(point.runs[0]))
        ],
        parts=[
            Plots("Scaling", [*_plots(by_series)], (KEY,)),
            *_tables(every, found),
            *headers,
        ],
    )
    prices = {series.name: series.record.price_per_device_hour for series in every}
    return SeriesReport(document, [finite(_entry(x, prices[x.series])) for x in found])


def _entry(point: Point, price: float | None) -> dict[str, Any]:
    first = point.runs[0].record
    measured = {k: v for k, v in vars(point).items() if k not in ("runs", "shares")}
    return {
        **{name: _plain(value) for name, value in measured.items()},
        "kilowatt_hours": _plain(point.power["kilowatt_hours"]),
        "shares": point.shares and point.shares.model_dump(),
        "runs": [str(run.folder) for run in point.runs],
        "engine": engine_name(first),
        "machine": first.machine.model_dump(),
        "parameters": first.parameters,
        "data": first.data.model_dump(),
        "price_per_device_hour": price,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return asdict(value) if isinstance(value, Estimate) else value


def _facts(series: Series) -> dict[str, str]:
    """Says what was trained, how and where; cores are those of a run's ranks."""
    record, first = series.record, series.first.record
    known, machine = facts(series.first), first.machine
    per = " per rank" if record.kind == "weak" else ""
    asked = f"{record.events} events{per} to train on, {record.validation}{per} to validate"
    accelerator = None if machine.accelerator == "cpu" else machine.accelerator
    shared = f"{record.cores_per_rank} of {record.host_cores} cores per rank"
    cores = shared if record.cores_per_rank else None
    where = ", ".join(filter(None, (machine.host, accelerator, machine.cpu, cores)))
    return {
        "scaling": f"{record.kind}: {asked}; {record.repeats} repeats with seeds of their own",
        "model": known["model"],
        "target": known["target"],
        "engine": engine_name(first),
        "machine": where or figures.DASH,
        "software": known["software"],
    }


def _numbers(point: Point) -> Iterator[Number]:
    for label, value, n in (
        ("speed-up", point.speedup, 2),
        ("parallel efficiency, %", point.efficiency.times(100), 1),
        ("s per epoch", point.epoch_seconds, 2),
    ):
        error = "" if value.error is None else f"±{value.error:,.{n}f}; {value.n} repeats"
        yield Number(label, f"{value.mean:,.{n}f}", error)


def _plots(by_series: dict[str, list[Point]]) -> Iterator[Plot]:
    """Draws speed-up, efficiency and seconds by ranks."""
    ranks = [point.ranks for own in by_series.values() for point in own]
    first, last = min(ranks), max(ranks)
    ideal = {
        "speedup": [Curve("ideal", [(first, 1.0), (last, last / first)], style="guide")],
        "efficiency": [Curve("ideal", [(first, 100.0), (last, 100.0)], style="guide")],
    }
    for title, what, scale in CURVES:
        lines = []
        for number, (name, own) in enumerate(by_series.items()):
            rows = []
            for point in own:
                value: Estimate = getattr(point, what).times(scale)
                error = value.error
                ends = () if error is None else (value.mean - error, value.mean + error)
                rows.append((point.ranks, value.mean, *ends))
            lines.append(Curve(name, rows, number))
        yield Plot(title, ("ranks",), [*lines, *ideal.get(what, ())], whole=True)


def _tables(every: Sequence[Series], found: Sequence[Point]) -> list[Table]:
    """Makes all tables, rows of each series and number of ranks, in reading order."""
    heads = [{"series": point.series, "ranks": str(point.ranks)} for point in found]

    def rows(cells: Iterator[dict[str, str]]) -> list[dict[str, str]]:
        return [head | own for head, own in zip(heads, cells, strict=True)]

    rules = dict.fromkeys(SPEEDUP_RULES[series.record.kind] for series in every)
    shares = rows(
        {**share_cells(x.shares), "imbalance": figures.with_error(x.imbalance, 2)} for x in found
    )
    plot = shares_plot((f"{point.series}, {point.ranks}", point.shares) for point in found)
    errors = [
        head | cells
        for head, point in zip(heads, found, strict=True)
        for cells in _validation(point)
    ]
    return [
        table_of(
            "Scaling", rows(map(_speed, found)), *rules, TIME_RULE, PREDICTION, *_notes(every)
        ),
        table_of("Validation after the last epoch", errors, PAPER, INTERVALS, text_columns=3),
        table_of(TIME_SHARES, shares, TIME_SHARES_NOTE, plot=plot),
        table_of(
            "Memory, energy and cost per epoch",
            rows(map(_resources, found)),
            POWER_NOTE,
            *_absent(every),
        ),
    ]


def _speed(point: Point) -> dict[str, str]:
    data = point.runs[0].record.data
    return {
        "runs": str(len(point.runs)),
        "events": figures.count(data.train_events),
        "edges": figures.count(data.edges),
        "epoch s": figures.seconds_with_error(point.epoch_seconds),
        "predicted s": figures.seconds(point.predicted),
        "batch s": figures.seconds_with_error(point.batch_seconds),
        "speed-up": figures.with_error(point.speedup, 2),
        "efficiency %": figures.percent_with_error(point.efficiency, 1),
    }


def _validation(point: Point) -> Iterator[dict[str, str]]:
    """Yields the means of the metrics, their errors, and both ends of the binomial intervals."""
    metrics = [point.metrics[name] for name in METRICS]
    ends = [point.intervals.get(name, (None, None)) for name in METRICS]
    for label, values in (
        ("mean over repeats", [x.mean if x else None for x in metrics]),
        ("± standard error", [x.error if x else None for x in metrics]),
        ("binomial, low", [low for low, _ in ends]),
        ("binomial, high", [high for _, high in ends]),
    ):
        cells = [
            figures.loss(value) if name == "loss" else figures.percent(value)
            for name, value in zip(METRICS, values, strict=True)
        ]
        yield {"": label, **dict(zip(COLUMNS, cells, strict=True))}


def _resources(point: Point) -> dict[str, str]:
    power = point.power
    energy, cost = power["kilowatt_hours"], power["dollars"]
    return {
        "peak memory": figures.memory(point.peak_memory_bytes),
        "utilisation %": figures.percent_with_error(power["utilisation"], 1),
        "memory %": figures.percent_with_error(power["memory"], 1),
        "accelerator J": figures.with_error(power["accelerator_joules"], 0),
        "host J": figures.with_error(power["host_joules"], 0),
        "kWh": figures.small(energy.mean if energy else None),
        "$": figures.small(cost.mean if cost else None),
    }


def _notes(every: Sequence[Series]) -> Iterator[str]:
    for series in every:
        cores = series.record.host_cores
        if cores is not None and max(series.runs) > cores:
            yield f"{series.name}: the host has {cores} cores, which more ranks than that share."
        yield from (f"{series.name}: {note}" for note in series.notes)


def _absent(every: Sequence[Series]) -> Iterator[str]:
    """Explains the columns that have dashes."""
    for series in every:
        powers = [e.power for runs in series.runs.values() for run in runs for e in run.epochs]
        reasons = {kind: why for power in powers for kind, why in power.absent.items()}
        for kind, why in reasons.items():
            yield f"{series.name}: no reading of the {kind}: {why}."
        price = series.record.price_per_device_hour
        if price is None:
            yield f"{series.name}: no price; give run.price_per_device_hour, in dollars."
        else:
            yield f"{series.name}: {price:g} dollars per device (rank) and hour."
