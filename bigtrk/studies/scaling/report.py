"""Reads the scaling series of `bigtrk scale`, averages by number of ranks, and reports."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bigtrk.cost.machines import machine_of
from bigtrk.errors import InputError, number_of
from bigtrk.planning.scaling import as_measured, epoch_seconds
from bigtrk.records.metrics import Shares
from bigtrk.records.record import read_record
from bigtrk.records.run_folder import Run, read_run_if_any
from bigtrk.records.studies import SERIES, SeriesRecord
from bigtrk.reports import facts, figures
from bigtrk.reports.document import Curve, Document, Facts, Number, Plot, Plots, Table, table_of
from bigtrk.reports.figures import INTERVALS, Estimate, estimate, ratio, wilson
from bigtrk.reports.metrics import COLUMNS, DENOMINATORS, PAPER
from bigtrk.reports.runs import finite

JOULES_PER_KWH = 3.6e6
_NAME = re.compile(r"ranks(\d+)-(\d+)")
_SPEEDUP_RULES = {
    "strong": "Strong scaling: speed-up t1 / tN, parallel efficiency t1 / (N tN).",
    "weak": "Weak scaling: speed-up in events per second N t1 / tN, efficiency t1 / tN.",
}
_TIME_RULE = (
    "t: seconds of an epoch's training, of each run the median over the epochs after the first, "
    "which warms up. t1: of the fewest ranks of the series, N counts from them. ±: standard error "
    "of the mean over repeats."
)
_PREDICTION = (
    "predicted: from a measured step of the fewest ranks and the counted exchanges, without "
    "waiting."
)
_BARS = "Bars: one standard error over repeats; grey: ideal."
_ROWS = ("mean over repeats", "± standard error", "binomial, low", "binomial, high")
_POWER_NOTE = (
    "Of an epoch's training, all ranks together. Utilisation (time that a kernel ran) and memory "
    "in use: means over samples (NVML). kWh: of accelerators and hosts (RAPL), as far as read. "
    "Energies are of whole devices, whoever else uses them."
)


@dataclass(frozen=True)
class Series:
    """The runs with a finished epoch, by number of ranks, ascending. notes: which are missing."""

    name: str
    record: SeriesRecord
    runs: dict[int, tuple[Run, ...]]
    notes: tuple[str, ...]

    @property
    def first(self) -> Run:
        """Returns the first run on the fewest ranks."""
        return next(iter(self.runs.values()))[0]


@dataclass(frozen=True)
class Point:
    """A series at one number of ranks: means over its runs. intervals: binomial, by metric. power:
    per epoch, energy and dollars of all devices, and mean shares; None if not known. predicted:
    seconds per epoch, from the step measured on the fewest ranks and counted exchanges.
    """

    series: str
    kind: str
    ranks: int
    runs: tuple[Run, ...]
    epoch_seconds: Estimate
    batch_seconds: Estimate | None
    speedup: Estimate
    efficiency: Estimate
    predicted: float | None
    metrics: dict[str, Estimate | None]
    intervals: dict[str, tuple[float, float]]
    shares: Shares | None
    imbalance: Estimate | None
    peak_memory_bytes: int | None
    power: dict[str, Estimate | None]


def run_name(ranks: int, repeat: int | None = None) -> str:
    """Returns the name of a run's folder; `repeat`: from 1. None: the prefix of all repeats."""
    return f"ranks{ranks:04d}" + ("" if repeat is None else f"-{repeat}")


def read_series(folder: Path) -> Series:
    """Reads a series; InputError if no run has finished an epoch, or a record is broken."""
    record = read_record(SeriesRecord, folder / SERIES)
    paths = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    found = [run for path in paths if (run := read_run_if_any(path))]
    by_ranks: dict[int, list[Run]] = defaultdict(list)
    notes = []
    for run in found:
        if run.epochs:
            by_ranks[run.record.world_size].append(run)
        planned = run.record.section("training").get("epochs")
        if isinstance(planned, int) and len(run.epochs) < planned:
            notes.append(
                f"{run.folder.name} has {len(run.epochs)} of {number_of(planned, 'epoch')}."
            )
    if not by_ranks:
        raise InputError(f"{folder}: no run has finished an epoch yet; wait until one has")
    names = {run.folder.name for run in found}
    wanted = [run_name(n, repeat + 1) for n in record.ranks for repeat in range(record.repeats)]
    if missing := [name for name in wanted if name not in names]:
        notes.append(f"Not there yet: {', '.join(missing)}.")
    runs = {ranks: tuple(by_ranks[ranks]) for ranks in sorted(by_ranks)}
    return Series(folder.resolve().name, record, runs, tuple(notes))


def points(series: Series) -> list[Point]:
    """Returns the points of a series, by ascending number of ranks."""
    record, found, predicted = series.record, [], dict[int, float]()
    with suppress(InputError):  # the cost model does not cover every configuration
        machine = machine_of(series.first.record.machine.accelerator or "cpu")
        measured = as_measured(machine, series.first)
        predicted = {n: epoch_seconds(runs[0], measured) for n, runs in series.runs.items()}
    first = None
    for ranks, runs in series.runs.items():
        timings = [facts.time_run(run) for run in runs]
        seconds = estimate(timing.epoch_seconds for timing in timings)
        if seconds is None or not seconds.mean:
            said = f"{runs[0].folder}: its metrics hold no times of epochs"
            raise InputError(f"{said}; move it out of the series")
        # The first point's ratio to itself has no error.
        gain = ratio(first[1], seconds) if first else Estimate(1.0, None, seconds.n)
        first = first or (ranks, seconds)
        factor = ranks / first[0]
        last = [run.epochs[-1].validation for run in runs]
        metrics = {
            name: estimate(getattr(one, name, None) for one in last) for name in COLUMNS.values()
        }
        # Denominators for Wilson's interval: one run's edges, averaged over the runs.
        edges = {
            name: [n for one in last if one and (n := count(one))]
            for name, count in DENOMINATORS.items()
        }
        power = [
            _power(run, t, record.price_per_device_hour)
            for run, t in zip(runs, timings, strict=True)
        ]
        peaks = [t.peak_memory_bytes for t in timings if t.peak_memory_bytes is not None]
        found.append(
            Point(
                series=series.name,
                kind=record.kind,
                ranks=ranks,
                runs=runs,
                epoch_seconds=seconds,
                batch_seconds=estimate(t.batch_seconds for t in timings),
                speedup=gain.times(factor) if record.kind == "weak" else gain,
                efficiency=gain if record.kind == "weak" else gain.times(1 / factor),
                predicted=predicted.get(ranks),
                metrics=metrics,
                intervals={
                    name: wilson(value.mean, round(fmean(known)))
                    for name, known in edges.items()
                    if known and (value := metrics[name])
                },
                shares=facts.mean_shares(t.shares for t in timings),
                imbalance=estimate(t.imbalance for t in timings),
                peak_memory_bytes=max(peaks, default=None),
                power={name: estimate(one[name] for one in power) for name in power[0]},
            )
        )
    return found


def _power(run: Run, timing: facts.Timing, price: float | None) -> dict[str, float | None]:
    """Returns mean energy, cost and loads over the epochs after the first; None if one lacks it."""
    found: dict[str, float | None] = {"kilowatt_hours": None, "dollars": None}
    for name in ("accelerator_joules", "host_joules", "utilisation", "memory"):
        values = [getattr(epoch.power, name) for epoch in run.epochs[1:] or run.epochs]
        found[name] = None if None in values else fmean(values)
    joules = [x for x in (found["accelerator_joules"], found["host_joules"]) if x is not None]
    if joules:
        found["kilowatt_hours"] = sum(joules) / JOULES_PER_KWH
    if price is not None and timing.epoch_seconds is not None:
        found["dollars"] = price * timing.epoch_seconds * run.record.world_size / 3600
    return found


def series_report(folders: Sequence[Path]) -> tuple[Document, str]:
    """Returns the report of series side by side, and JSON lines, one per series and number of
    ranks. Raises InputError as `read_series`, or if two series have the same name.
    """
    every = [read_series(folder) for folder in folders]
    names = [series.name for series in every]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{twice[0]}: two series have this name; rename or leave out one")
    by_series = {series.name: points(series) for series in every}
    headers = [Facts(f"Series {series.name}", _facts(series)) for series in every]
    largest = [own[-1] for own in by_series.values()]
    last = [(f"{one.series}, {number_of(one.ranks, 'rank')}", one) for one in largest]
    document = Document(
        title=f"bigtrk scaling: {', '.join(names)}",
        lead=" ".join(
            f"{x.title}: {x.facts['model']}; {x.facts['scaling']}; {x.facts['engine']}, "
            f"{x.facts['machine']}."
            for x in headers
        ),
        numbers=[(name, [*_numbers(point)]) for name, point in last],
        verdict=[
            f"{name}: {limit}"
            for name, x in last
            for limit in facts.time_limit(facts.time_run(x.runs[0]))
        ],
        parts=[
            Plots("Scaling", [*_plots(by_series)], (_BARS,)),
            *_tables(every, [point for own in by_series.values() for point in own]),
            *headers,
        ],
    )
    lines = [finite(_line(x, series)) for series in every for x in by_series[series.name]]
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    return document, text


def _line(point: Point, series: Series) -> dict[str, Any]:
    first, figures = point.runs[0].record, asdict(replace(point, runs=(), shares=None))
    return {
        **figures,
        "kilowatt_hours": figures["power"]["kilowatt_hours"],
        "shares": point.shares and point.shares.model_dump(),
        "runs": [str(run.folder) for run in point.runs],
        "engine": facts.engine_name(first),
        "machine": first.machine.model_dump(),
        "parameters": first.parameters,
        "data": first.data.model_dump(),
        "price_per_device_hour": series.record.price_per_device_hour,
    }


def _facts(series: Series) -> dict[str, str]:
    """Returns the training, settings and machine of a series, by the first run, texts by label."""
    record, first = series.record, series.first.record
    known = facts.facts(series.first)
    per = " per rank" if record.kind == "weak" else ""
    events, repeats = number_of(record.events, "event"), number_of(record.repeats, "repeat")
    asked = f"{events}{per} to train on, {record.validation}{per} to validate"
    cores = number_of(record.host_cores or 0, "core")
    shared = f", {record.cores_per_rank} of {cores} per rank"
    return {
        "scaling": f"{record.kind}: {asked}; {repeats}, each with its own seed",
        "model": known["model"],
        "target": known["target"],
        "engine": facts.engine_name(first),
        "machine": known["machine"] + (shared if record.cores_per_rank else ""),
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
    """Yields plots of speed-up, efficiency and seconds against the number of ranks."""
    ranks = [point.ranks for own in by_series.values() for point in own]
    first, last = min(ranks), max(ranks)
    for title, what, scale, ideal in (
        ("Speed-up", "speedup", 1, [(first, 1.0), (last, last / first)]),
        ("Parallel efficiency, %", "efficiency", 100, [(first, 100.0), (last, 100.0)]),
        ("Epoch, s", "epoch_seconds", 1, []),
    ):
        curves = []
        for number, (name, own) in enumerate(by_series.items()):
            rows = []
            for point in own:
                x: Estimate = getattr(point, what).times(scale)
                ends = () if x.error is None else (x.mean - x.error, x.mean + x.error)
                rows.append((point.ranks, x.mean, *ends))
            curves.append(Curve(name, rows, number))
        guide = [Curve("ideal", ideal, style="guide")] if ideal else []
        yield Plot(title, ("ranks",), [*curves, *guide], whole=True)


def _tables(every: Sequence[Series], found: Sequence[Point]) -> list[Table]:
    """Returns all tables, each with a row per series and number of ranks."""
    speed, validation, shares, resources = [], [], [], []
    for point in found:
        data, power = point.runs[0].record.data, point.power
        energy, cost = power["kilowatt_hours"], power["dollars"]
        head = {"series": point.series, "ranks": str(point.ranks)}
        speed.append(
            {
                **head,
                "runs": str(len(point.runs)),
                "events": figures.count(data.train_events),
                "edges": figures.count(data.edges),
                "epoch s": figures.seconds_with_error(point.epoch_seconds),
                "predicted s": figures.seconds(point.predicted),
                "batch s": figures.seconds_with_error(point.batch_seconds),
                "speed-up": figures.with_error(point.speedup, 2),
                "efficiency %": figures.percent_with_error(point.efficiency, 1),
            }
        )
        cells = {}
        for column, name in COLUMNS.items():
            mean, text = point.metrics[name], figures.loss if name == "loss" else figures.percent
            ends = point.intervals.get(name, (None, None))
            cells[column] = [text(x) for x in (mean and mean.mean, mean and mean.error, *ends)]
        validation += [
            {**head, "": label, **{column: own[i] for column, own in cells.items()}}
            for i, label in enumerate(_ROWS)
        ]
        shares.append(
            {
                **head,
                **facts.share_cells(point.shares),
                "imbalance": figures.with_error(point.imbalance, 2),
            }
        )
        resources.append(
            {
                **head,
                "peak memory": figures.memory(point.peak_memory_bytes),
                "utilisation %": figures.percent_with_error(power["utilisation"], 1),
                "memory %": figures.percent_with_error(power["memory"], 1),
                "accelerator J": figures.with_error(power["accelerator_joules"], 0),
                "host J": figures.with_error(power["host_joules"], 0),
                "kWh": figures.small(energy.mean if energy else None),
                "$": figures.small(cost.mean if cost else None),
            }
        )
    rules = dict.fromkeys(_SPEEDUP_RULES[series.record.kind] for series in every)
    plot = facts.shares_plot((f"{point.series}, {point.ranks}", point.shares) for point in found)
    notes = [_TIME_RULE, _PREDICTION, *_notes(every)]
    return [
        table_of("Scaling", speed, *rules, *notes),
        table_of("Validation after the last epoch", validation, PAPER, INTERVALS, text_columns=3),
        table_of(facts.TIME_SHARES, shares, facts.TIME_SHARES_NOTE, plot=plot),
        table_of("Memory, energy and cost per epoch", resources, _POWER_NOTE, *_absent(every)),
    ]


def _notes(every: Sequence[Series]) -> Iterator[str]:
    for series in every:
        cores = series.record.host_cores
        if cores is not None and max(series.runs) > cores:
            shared = number_of(cores, "core")
            yield f"{series.name}: the host has {shared}, which more ranks than that share."
        yield from (f"{series.name}: {note}" for note in series.notes)


def _absent(every: Sequence[Series]) -> Iterator[str]:
    """Yields notes that explain why columns have dashes."""
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
