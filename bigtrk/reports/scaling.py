"""The speed of each run, and the gain from more ranks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bigtrk.records.metrics import Shares
from bigtrk.records.run_folder import Run, labels

TIMING_RULE = (
    "Times are medians over the epochs after the first, which warms up (shares: means; peak "
    "memory: the largest of all epochs). Validation is not counted."
)
SPEEDUP_RULE = (
    "Speed-up: edges/s over edges/s of the baseline, the run of the same model and accelerator on "
    "the fewest ranks (of the same engine where there is one). Parallel efficiency: speed-up x "
    "baseline ranks / ranks; for equal work and a baseline of one rank, t1 / (N tN)."
)


@dataclass(frozen=True)
class Timing:
    """One run's speed. `epochs` is the number of epochs that the figures rest on."""

    epochs: int
    warm: bool
    epoch_seconds: float | None
    batch_seconds: float | None
    edges_per_second: float | None
    shares: Shares | None
    imbalance: float | None
    peak_memory_bytes: int | None


@dataclass(frozen=True)
class ScalingRow:
    """A run's place in a comparison; without one (see `SPEEDUP_RULE`) the figures are None."""

    run: str
    ranks: int
    baseline: str | None
    speedup: float | None
    efficiency: float | None


@dataclass(frozen=True)
class Scaling:
    """The comparison of all runs, with what a reader must know of it."""

    timings: tuple[Timing, ...]
    rows: tuple[ScalingRow, ...]
    notes: tuple[str, ...]

    @property
    def compares(self) -> bool:
        """Says whether any run is compared with another one."""
        return any(row.baseline not in (None, row.run) for row in self.rows)


def time_run(run: Run) -> Timing:
    """Returns the run's speed by `TIMING_RULE`."""
    epochs = run.epochs[1:] or run.epochs
    return Timing(
        epochs=len(epochs),
        warm=len(run.epochs) > 1,
        epoch_seconds=_median(e.seconds for e in epochs),
        batch_seconds=_median(e.batch_seconds for e in epochs),
        edges_per_second=_median(e.edges_per_second for e in epochs),
        shares=mean_shares(epoch.shares for epoch in epochs),
        imbalance=_median(e.imbalance for e in epochs),
        peak_memory_bytes=max((e.peak_memory_bytes for e in run.epochs), default=None),
    )


def compare(runs: Sequence[Run]) -> Scaling:
    """Returns every run's speed and, by `SPEEDUP_RULE`, speed-up and parallel efficiency."""
    timings = tuple(time_run(run) for run in runs)
    names = labels(runs)
    rows = tuple(_row(index, runs, timings, names) for index in range(len(runs)))
    return Scaling(timings, rows, tuple(_notes(runs, timings, names)))


def _row(
    index: int, runs: Sequence[Run], timings: Sequence[Timing], names: Sequence[str]
) -> ScalingRow:
    ranks = runs[index].record.world_size
    rate = timings[index].edges_per_second
    rates = [timing.edges_per_second for timing in timings]
    base = _baseline(runs[index], [r for r, speed in zip(runs, rates, strict=True) if speed])
    if base is None or rate is None:
        return ScalingRow(names[index], ranks, None, None, None)
    position = list(runs).index(base)
    base_rate = rates[position]
    assert base_rate is not None, "only runs with a speed are candidates"
    speedup = rate / base_rate
    efficiency = speedup * base.record.world_size / ranks
    return ScalingRow(names[index], ranks, names[position], speedup, efficiency)


def _baseline(run: Run, candidates: Sequence[Run]) -> Run | None:
    alike = [other for other in candidates if _task(other) == _task(run)]
    fewest = min((other.record.world_size for other in alike), default=0)
    smallest = [other for other in alike if other.record.world_size == fewest]
    same_engine = [other for other in smallest if _engine(other) == _engine(run)]
    return next(iter(same_engine or smallest), None)


def _task(run: Run) -> tuple[int | None, str | None]:
    """Returns what must agree for a comparison to be about ranks alone."""
    return run.record.parameters, run.record.machine.accelerator


def _engine(run: Run) -> tuple[str, str | None]:
    return run.record.engine, run.record.engine_detail


def _notes(runs: Sequence[Run], timings: Sequence[Timing], names: Sequence[str]) -> Iterable[str]:
    for name, timing in zip(names, timings, strict=True):
        if timing.epochs and not timing.warm:
            yield f"{name} has one finished epoch: its figures include the warm-up."
        if not timing.epochs:
            yield f"{name} has no finished epoch yet: it has no figures."
    if len({run.record.world_size for run in runs}) > 1:
        yield from _caveats(runs)


def _caveats(runs: Sequence[Run]) -> Iterable[str]:
    if len({_task(run) for run in runs}) > 1:
        yield "The runs differ in model or accelerator: only like is compared with like."
    if len({run.record.data.edges for run in runs}) > 1:
        yield "The runs train different numbers of edges: speed per edge is compared, weak scaling."
    machines = {(run.record.machine.host, run.record.machine.accelerator) for run in runs}
    cores = runs[0].record.machine.cores
    if len(machines) == 1 and next(iter(machines))[1] == "cpu" and cores:
        yield (
            f"All runs were started on one CPU host with {cores} cores: where ranks share these, "
            "more ranks add no cores, and the speed-up shows what the split costs."
        )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def mean_shares(shares: Iterable[Shares | None]) -> Shares | None:
    """Returns the mean of those that are known; None where none is."""
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Shares(
        exchange=fmean(share.exchange for share in known),
        compute=fmean(share.compute for share in known),
        reduce=fmean(share.reduce for share in known),
        data=fmean(share.data for share in known),
    )
