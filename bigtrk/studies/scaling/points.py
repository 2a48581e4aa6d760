"""The measurements of a series at each number of ranks, with errors over its repeats."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bigtrk.cost.machines import machine_of
from bigtrk.errors import InputError
from bigtrk.planning.scaling import as_measured, epoch_seconds
from bigtrk.records.metrics import MeanEdgeMetrics, PowerRecord, Shares
from bigtrk.records.run_folder import Run
from bigtrk.reports.figures import Estimate, estimate, ratio, wilson
from bigtrk.reports.metrics import DENOMINATORS
from bigtrk.reports.scaling import Timing, mean_shares, time_run
from bigtrk.studies.scaling.series import Series

SPEEDUP_RULES = {
    "strong": "Strong scaling: speed-up t1 / tN, parallel efficiency t1 / (N tN).",
    "weak": "Weak scaling: speed-up in events per second N t1 / tN, efficiency t1 / tN.",
}
TIME_RULE = (
    "t: seconds of an epoch's training; of each run the median over the epochs after the first, "
    "which warms up. t1: of the fewest ranks of the series, where N counts from these. "
    "±: standard error of the mean over repeats."
)
METRICS = ("efficiency", "target_purity", "total_purity", "purity", "auc", "loss")
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class PredictedPoint:
    """What a measured step of the fewest ranks, counted work and counted exchanges give."""

    epoch_seconds: float
    speedup: float
    efficiency: float


@dataclass(frozen=True)
class Power:
    """An epoch's joules and dollars of all devices, mean shares; None where not known."""

    accelerator_joules: Estimate | None
    host_joules: Estimate | None
    utilisation: Estimate | None
    memory: Estimate | None
    dollars: Estimate | None

    @property
    def kilowatt_hours(self) -> Estimate | None:
        """Sums all that was read; None where nothing was."""
        known = [x for x in (self.accelerator_joules, self.host_joules) if x]
        if not known:
            return None
        total = known[0] if len(known) == 1 else _sum(known[0], known[1])
        return total.times(1 / JOULES_PER_KWH)


@dataclass(frozen=True)
class Point:
    """One number of ranks of a series. intervals: binomial, by metric."""

    series: str
    kind: str
    ranks: int
    runs: tuple[Run, ...]
    epoch_seconds: Estimate
    batch_seconds: Estimate | None
    speedup: Estimate
    efficiency: Estimate
    predicted: PredictedPoint | None
    metrics: dict[str, Estimate | None]
    intervals: dict[str, tuple[float, float]]
    shares: Shares | None
    imbalance: Estimate | None
    peak_memory_bytes: int | None
    power: Power


def points(series: Series) -> list[Point]:
    """Returns the points by number of ranks, ascending."""
    times = {ranks: _epoch_seconds(runs) for ranks, runs in series.runs.items()}
    plans, first = _predicted(series), min(times)
    planned = plans[first]
    found = []
    for ranks, runs in series.runs.items():
        factor, predicted, plan = ranks / first, None, plans[ranks]
        gain = _one(times[first]) if ranks == first else ratio(times[first], times[ranks])
        speedup, efficiency = _scaled(series.record.kind, gain, factor)
        if plan is not None and planned is not None:
            fast, good = _scaled(series.record.kind, Estimate(planned / plan, None, 1), factor)
            predicted = PredictedPoint(plan, fast.mean, good.mean)
        found.append(_point(series, runs, times[ranks], speedup, efficiency, predicted))
    return found


def _point(
    series: Series,
    runs: tuple[Run, ...],
    seconds: Estimate,
    speedup: Estimate,
    efficiency: Estimate,
    predicted: PredictedPoint | None,
) -> Point:
    timings = [time_run(run) for run in runs]
    last = [run.epochs[-1].validation for run in runs]
    metrics = {
        name: estimate(getattr(found, name) if found else None for found in last)
        for name in METRICS
    }
    peaks = [t.peak_memory_bytes for t in timings if t.peak_memory_bytes is not None]
    return Point(
        series=series.name,
        kind=series.record.kind,
        ranks=runs[0].record.world_size,
        runs=runs,
        epoch_seconds=seconds,
        batch_seconds=estimate(t.batch_seconds for t in timings),
        speedup=speedup,
        efficiency=efficiency,
        predicted=predicted,
        metrics=metrics,
        intervals=_intervals(metrics, last),
        shares=mean_shares(t.shares for t in timings),
        imbalance=estimate(t.imbalance for t in timings),
        peak_memory_bytes=max(peaks, default=None),
        power=_power(runs, timings, series.record.price_per_device_hour),
    )


def _epoch_seconds(runs: Sequence[Run]) -> Estimate:
    found = estimate(time_run(run).epoch_seconds for run in runs)
    if found is None or not found.mean:
        raise InputError(f"{runs[0].folder}: its epochs have no times; leave this run out")
    return found


def _scaled(kind: str, gain: Estimate, factor: float) -> tuple[Estimate, Estimate]:
    """Returns speed-up and efficiency of `gain` t1 / tN on `factor` times the ranks."""
    if kind == "weak":
        return gain.times(factor), gain
    return gain, gain.times(1 / factor)


def _one(time: Estimate) -> Estimate:
    """Returns the first point's ratio to itself, which has no error."""
    return Estimate(1.0, None, time.n)


def _predicted(series: Series) -> dict[int, float | None]:
    """Returns the seconds of an epoch on each number of ranks, by a measured step of the fewest;
    None where they cannot be counted.
    """
    on_hosts = series.record.ranks_per_node, series.record.shares
    found: dict[int, float | None] = dict.fromkeys(series.runs)
    try:
        machine = machine_of(series.first.record.machine.accelerator or "cpu")
        measured = as_measured(machine, series.first, *on_hosts)
        for ranks, runs in series.runs.items():
            found[ranks] = epoch_seconds(runs[0], measured, *on_hosts)
    except InputError:
        pass
    return found


def _intervals(
    metrics: dict[str, Estimate | None], runs: Sequence[MeanEdgeMetrics | None]
) -> dict[str, tuple[float, float]]:
    """Returns the Wilson interval of each ratio of counts over one run's edges (the runs' mean)."""
    found = {}
    for name, count in DENOMINATORS.items():
        value = metrics[name]
        edges = [count(run) for run in runs if run]
        known = [n for n in edges if n]
        if value is not None and known:
            found[name] = wilson(value.mean, round(fmean(known)))
    return found


def _power(runs: Sequence[Run], timings: Sequence[Timing], price: float | None) -> Power:
    read = {
        name: estimate(_mean_power(run, name) for run in runs)
        for name in ("accelerator_joules", "host_joules", "utilisation", "memory")
    }
    hours = estimate(
        None if t.epoch_seconds is None else t.epoch_seconds * run.record.world_size / 3600
        for run, t in zip(runs, timings, strict=True)
    )
    dollars = None if price is None or hours is None else hours.times(price)
    return Power(**read, dollars=dollars)


def _mean_power(run: Run, name: str) -> float | None:
    """Returns a reading's mean over the epochs after the first; None if one of them lacks it."""
    powers: list[PowerRecord] = [epoch.power for epoch in run.epochs[1:] or run.epochs]
    values = [getattr(power, name) for power in powers]
    return None if None in values else fmean(values)


def _sum(a: Estimate, b: Estimate) -> Estimate:
    errors = (a.error, b.error)
    error = None if None in errors else sum(x * x for x in errors if x) ** 0.5
    return Estimate(a.mean + b.mean, error, min(a.n, b.n))
