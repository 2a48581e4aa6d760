"""A scaling series as `bigtrk scale` leaves it: its runs, and the means of each number of ranks."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bigtrk.cost.machines import machine_of
from bigtrk.errors import InputError
from bigtrk.planning.scaling import as_measured, epoch_seconds
from bigtrk.records.metrics import MeanEdgeMetrics, Shares
from bigtrk.records.record import read_record
from bigtrk.records.run_folder import RUN, Run, read_run
from bigtrk.records.studies import SERIES, SeriesRecord
from bigtrk.reports.figures import Estimate, estimate, ratio, wilson
from bigtrk.reports.metrics import DENOMINATORS
from bigtrk.reports.scaling import Timing, mean_shares, time_run

METRICS = ("efficiency", "target_purity", "total_purity", "purity", "auc", "loss")
JOULES_PER_KWH = 3.6e6
_NAME = re.compile(r"ranks(\d+)-(\d+)")


@dataclass(frozen=True)
class Series:
    """The runs of a series that have finished an epoch, by number of ranks, ascending. notes: what
    is missing.
    """

    name: str
    record: SeriesRecord
    runs: dict[int, tuple[Run, ...]]
    notes: tuple[str, ...]

    @property
    def first(self) -> Run:
        """Returns a run of the fewest ranks."""
        return next(iter(self.runs.values()))[0]


def run_name(ranks: int, repeat: int | None = None) -> str:
    """Names a run's folder; repeats count from 1. Without one: what all of their names share."""
    return f"ranks{ranks:04d}" + ("" if repeat is None else f"-{repeat}")


def read_series(folder: Path) -> Series:
    """Reads all runs of a series that are there.

    Raises:
        InputError: none has finished an epoch, or a record is broken.
    """
    record = read_record(SeriesRecord, folder / SERIES)
    paths = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    found = [read_run(path) for path in paths if (path / RUN).exists()]
    by_ranks: dict[int, list[Run]] = defaultdict(list)
    for run in found:
        if run.epochs:
            by_ranks[run.record.world_size].append(run)
    if not by_ranks:
        raise InputError(f"{folder}: no run of the series has finished an epoch yet")
    runs = {ranks: tuple(by_ranks[ranks]) for ranks in sorted(by_ranks)}
    return Series(folder.resolve().name, record, runs, tuple(_notes(record, found)))


def _notes(record: SeriesRecord, found: list[Run]) -> Iterator[str]:
    training = record.configuration.get("training")
    epochs = training.get("epochs") if isinstance(training, dict) else None
    for run in found:
        if isinstance(epochs, int) and len(run.epochs) < epochs:
            yield f"{run.folder.name} has {len(run.epochs)} of {epochs} epochs."
    names = {run.folder.name for run in found}
    wanted = [run_name(n, repeat + 1) for n in record.ranks for repeat in range(record.repeats)]
    missing = [name for name in wanted if name not in names]
    if missing:
        yield f"Not there yet: {', '.join(missing)}."


@dataclass(frozen=True)
class Point:
    """One number of ranks of a series: means over its runs. intervals: binomial, by metric. power:
    an epoch's energy and dollars of all devices, and mean shares; None where not known.
    predicted: seconds of an epoch by a measured step of the fewest ranks, and counted exchanges.
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


def points(series: Series) -> list[Point]:
    """Returns the points by number of ranks, ascending."""
    times = {ranks: _epoch_seconds(runs) for ranks, runs in series.runs.items()}
    first, price = min(times), series.record.price_per_device_hour
    predicted = _predicted(series)
    found = []
    for ranks, runs in series.runs.items():
        factor = ranks / first
        # The first point's ratio to itself has no error.
        one = Estimate(1.0, None, times[first].n)
        gain = one if ranks == first else ratio(times[first], times[ranks])
        weak = series.record.kind == "weak"
        timings = [time_run(run) for run in runs]
        last = [run.epochs[-1].validation for run in runs]
        metrics = {
            name: estimate(getattr(one, name) if one else None for one in last) for name in METRICS
        }
        powers = [_power(run, t, price) for run, t in zip(runs, timings, strict=True)]
        peaks = [t.peak_memory_bytes for t in timings if t.peak_memory_bytes is not None]
        found.append(
            Point(
                series=series.name,
                kind=series.record.kind,
                ranks=ranks,
                runs=runs,
                epoch_seconds=times[ranks],
                batch_seconds=estimate(t.batch_seconds for t in timings),
                speedup=gain.times(factor) if weak else gain,
                efficiency=gain if weak else gain.times(1 / factor),
                predicted=predicted.get(ranks),
                metrics=metrics,
                intervals=_intervals(metrics, last),
                shares=mean_shares(t.shares for t in timings),
                imbalance=estimate(t.imbalance for t in timings),
                peak_memory_bytes=max(peaks, default=None),
                power={name: estimate(one[name] for one in powers) for name in powers[0]},
            )
        )
    return found


def _epoch_seconds(runs: Sequence[Run]) -> Estimate:
    found = estimate(time_run(run).epoch_seconds for run in runs)
    if found is None or not found.mean:
        raise InputError(f"{runs[0].folder}: its epochs have no times; leave this run out")
    return found


def _predicted(series: Series) -> dict[int, float]:
    """Returns the predicted seconds of an epoch by ranks; none where they cannot be counted."""
    try:
        machine = machine_of(series.first.record.machine.accelerator or "cpu")
        measured = as_measured(machine, series.first)
        return {ranks: epoch_seconds(runs[0], measured) for ranks, runs in series.runs.items()}
    except InputError:
        return {}


def _intervals(
    metrics: dict[str, Estimate | None], runs: Sequence[MeanEdgeMetrics | None]
) -> dict[str, tuple[float, float]]:
    """Returns the Wilson interval of each ratio of counts over one run's edges (the runs' mean)."""
    found = {}
    for name, count in DENOMINATORS.items():
        value = metrics[name]
        known = [n for run in runs if run and (n := count(run))]
        if value is not None and known:
            found[name] = wilson(value.mean, round(fmean(known)))
    return found


def _power(run: Run, timing: Timing, price: float | None) -> dict[str, float | None]:
    """Returns a run's means over the epochs after the first; None where one of them lacks it."""
    found: dict[str, float | None] = {}
    for name in ("accelerator_joules", "host_joules", "utilisation", "memory"):
        values = [getattr(epoch.power, name) for epoch in run.epochs[1:] or run.epochs]
        found[name] = None if None in values else fmean(values)
    read = [found[name] for name in ("accelerator_joules", "host_joules")]
    joules = [one for one in read if one is not None]
    found["kilowatt_hours"] = sum(joules) / JOULES_PER_KWH if joules else None
    found["dollars"] = None
    if price is not None and timing.epoch_seconds is not None:
        found["dollars"] = price * timing.epoch_seconds * run.record.world_size / 3600
    return found
