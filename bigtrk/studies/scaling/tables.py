"""The tables of scaling series, the same for terminal and page."""

from collections.abc import Iterator, Sequence

from bigtrk.reports import figures
from bigtrk.reports.document import Table, table_of
from bigtrk.reports.facts import engine_name, facts
from bigtrk.reports.figures import INTERVAL_RULE, Estimate
from bigtrk.reports.metrics import METRIC_COLUMNS, PAPER
from bigtrk.reports.scaling import TIME_SHARES, TIME_SHARES_NOTE, share_cells, shares_plot
from bigtrk.studies.scaling.points import METRICS, SPEEDUP_RULES, TIME_RULE, Point
from bigtrk.studies.scaling.series import Series

POWER_NOTE = (
    "Of an epoch's training, all ranks together. Utilisation: time that a kernel ran; memory in "
    "use of the accelerator's: means over samples (NVML). kWh: of what was read, accelerators and "
    "hosts (RAPL). The energy is a device's whole, whoever else uses it."
)
PREDICTION_NOTE = (
    "Predicted: by a measured step of the fewest ranks, and the counted work and exchanges of the "
    "others; a dash: they cannot be counted for this model or these events."
)


def series_facts(series: Series) -> dict[str, str]:
    """Says what was trained, how and where: text by label."""
    record, known = series.record, facts(series.first)
    per = " per rank" if record.kind == "weak" else ""
    asked = f"{record.events} events{per} to train on, {record.validation}{per} to validate"
    return {
        "scaling": f"{record.kind}: {asked}; {record.repeats} repeats with seeds of their own",
        "model": known["model"],
        "target": known["target"],
        "engine": engine_name(series.first.record),
        "machine": _machine(series),
        "software": known["software"],
    }


def _machine(series: Series) -> str:
    """Describes the machine of a run, whose cores are those of its ranks."""
    machine, record = series.first.record.machine, series.record
    accelerator = None if machine.accelerator == "cpu" else machine.accelerator
    shared = f"{record.cores_per_rank} of {record.host_cores} cores per rank"
    cores = shared if record.cores_per_rank else None
    return ", ".join(filter(None, (machine.host, accelerator, machine.cpu, cores))) or figures.DASH


def series_tables(every: Sequence[Series], points: Sequence[Point]) -> list[Table]:
    """Makes all tables, a row per series and number of ranks, in reading order."""
    return [
        _scaling(every, points),
        _predicted(points),
        _validation(points),
        _errors(points),
        _time_shares(points),
        _resources(every, points),
    ]


def _scaling(every: Sequence[Series], points: Sequence[Point]) -> Table:
    rows = tuple(
        (
            *_head(point),
            str(len(point.runs)),
            figures.count(point.runs[0].record.data.train_events),
            figures.count(point.runs[0].record.data.edges),
            figures.seconds_with_error(point.epoch_seconds),
            figures.with_error(point.speedup, 2),
            figures.percent_with_error(point.efficiency, 1),
        )
        for point in points
    )
    columns = ("series", "ranks", "runs", "events", "edges", "epoch s", "speed-up", "efficiency %")
    kinds = dict.fromkeys(SPEEDUP_RULES[series.record.kind] for series in every)
    return Table("Scaling", columns, rows, (*kinds, TIME_RULE, *_notes(every)))


def _predicted(points: Sequence[Point]) -> Table:
    """Compares measured and predicted figures side by side."""
    rows = []
    for point in points:
        plan = point.predicted
        rows.append(
            (
                *_head(point),
                figures.seconds(point.epoch_seconds.mean),
                figures.seconds(plan.epoch_seconds if plan else None),
                figures.decimal(point.speedup.mean),
                figures.decimal(plan.speedup if plan else None),
                figures.share(point.efficiency.mean),
                figures.share(plan.efficiency if plan else None),
            )
        )
    columns = (
        *("series", "ranks", "epoch s", "predicted epoch s", "speed-up", "predicted speed-up"),
        *("efficiency %", "predicted efficiency %"),
    )
    return Table("Measured and predicted", columns, tuple(rows), (PREDICTION_NOTE,))


def _notes(every: Sequence[Series]) -> Iterator[str]:
    for series in every:
        cores = series.record.host_cores
        if cores is not None and max(series.runs) > cores:
            yield f"{series.name}: the host has {cores} cores, which more ranks than that share."
        yield from (f"{series.name}: {note}" for note in series.notes)


def _validation(points: Sequence[Point]) -> Table:
    rows = tuple(
        (
            *_head(point),
            *(_metric(name, _mean(point.metrics[name])) for name in METRICS),
            figures.seconds(_mean(point.epoch_seconds)),
            figures.seconds(_mean(point.batch_seconds)),
        )
        for point in points
    )
    columns = ("series", "ranks", *METRIC_COLUMNS, "epoch s", "batch s")
    title = "Validation after the last epoch, means over repeats"
    return Table(title, columns, rows, (PAPER,))


def _errors(points: Sequence[Point]) -> Table:
    """Makes three rows per point: over repeats, and both ends of the binomial interval."""
    rows = []
    for point in points:
        repeats = [point.metrics[name] for name in METRICS]
        errors = [_metric(n, x.error if x else None) for n, x in zip(METRICS, repeats, strict=True)]
        rows.append((*_head(point), "± over repeats", *errors))
        for end, label in enumerate(("binomial, low", "binomial, high")):
            found = [point.intervals.get(name) for name in METRICS]
            ends = [_metric(n, x[end] if x else None) for n, x in zip(METRICS, found, strict=True)]
            rows.append((*_head(point), label, *ends))
    columns = ("series", "ranks", "error", *METRIC_COLUMNS)
    notes = ("Over repeats: standard error of the mean.", INTERVAL_RULE)
    return Table("Errors of the validation", columns, tuple(rows), notes, text_columns=3)


def _time_shares(points: Sequence[Point]) -> Table:
    rows = [
        {
            **dict(zip(("series", "ranks"), _head(point), strict=True)),
            **share_cells(point.shares),
            "imbalance": figures.with_error(point.imbalance, 2),
        }
        for point in points
    ]
    plot = shares_plot((f"{point.series}, {point.ranks}", point.shares) for point in points)
    return table_of(TIME_SHARES, rows, TIME_SHARES_NOTE, plot=plot)


def _resources(every: Sequence[Series], points: Sequence[Point]) -> Table:
    rows = []
    for point in points:
        power = point.power
        rows.append(
            (
                *_head(point),
                figures.memory(point.peak_memory_bytes),
                figures.percent_with_error(power.utilisation, 1),
                figures.percent_with_error(power.memory, 1),
                figures.with_error(power.accelerator_joules, 0),
                figures.with_error(power.host_joules, 0),
                figures.small(_mean(power.kilowatt_hours)),
                figures.small(_mean(power.dollars)),
            )
        )
    columns = (
        *("series", "ranks", "peak memory", "utilisation %", "memory %"),
        *("accelerator J", "host J", "kWh", "$"),
    )
    notes = (POWER_NOTE, *_absent(every))
    return Table("Memory, energy and cost per epoch", columns, tuple(rows), notes)


def _absent(every: Sequence[Series]) -> Iterator[str]:
    """Says why columns have dashes."""
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


def _head(point: Point) -> tuple[str, str]:
    return point.series, str(point.ranks)


def _metric(name: str, value: float | None) -> str:
    return figures.loss(value) if name == "loss" else figures.percent(value)


def _mean(value: Estimate | None) -> float | None:
    return value.mean if value else None
