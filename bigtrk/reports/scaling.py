"""The speed of each run, the gain from more ranks, and the share of its GPUs that a run reached."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from bigtrk.records.metrics import Shares
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import figures
from bigtrk.reports.document import Bars, Plot

TIMING_RULE = (
    "Times are medians over the epochs after the first, which warms up (shares: means; peak "
    "memory: the largest of all epochs). Validation is not counted."
)
SPEEDUP_RULE = (
    "Speed-up: edges/s over edges/s of the baseline, the run of the same model and accelerator on "
    "the fewest ranks (of the same engine where there is one). Parallel efficiency: speed-up x "
    "baseline ranks / ranks; for equal work and a baseline of one rank, t1 / (N tN)."
)
TIME_SHARES = "Where the time goes"
TIME_SHARES_NOTE = (
    "Exchange: halo rows between ranks. Reduction: gradients. Data: reading events. "
    "Imbalance: compute time of the slowest rank over the mean."
)
ACTIVITIES = {"compute": "compute", "exchange": "exchange", "reduce": "reduction", "data": "data"}
UNEVEN = 1.1  # imbalance from which the slowest rank is worth a word


@dataclass(frozen=True)
class Timing:
    """One run's speed, of `epochs` epochs."""

    epochs: int
    epoch_seconds: float | None
    batch_seconds: float | None
    edges_per_second: float | None
    shares: Shares | None
    imbalance: float | None
    peak_memory_bytes: int | None

    def summary(self) -> dict[str, Any]:
        """Returns the figures, JSON-able."""
        return {**asdict(self), "shares": self.shares and self.shares.model_dump()}


@dataclass(frozen=True)
class Compared:
    """A run by name, its speed, and its gain over the run `baseline`, by `SPEEDUP_RULE`; None where
    there is none.
    """

    name: str
    run: Run
    timing: Timing
    baseline: str | None
    speedup: float | None
    efficiency: float | None


def time_run(run: Run) -> Timing:
    """Returns the run's speed by `TIMING_RULE`."""
    epochs = run.epochs[1:] or run.epochs
    return Timing(
        epochs=len(epochs),
        epoch_seconds=_median(e.seconds for e in epochs),
        batch_seconds=_median(e.batch_seconds for e in epochs),
        edges_per_second=_median(e.edges_per_second for e in epochs),
        shares=mean_shares(epoch.shares for epoch in epochs),
        imbalance=_median(e.imbalance for e in epochs),
        peak_memory_bytes=max((e.peak_memory_bytes for e in run.epochs), default=None),
    )


def compare(runs: Sequence[Run]) -> list[Compared]:
    """Returns every run's speed and, by `SPEEDUP_RULE`, speed-up and parallel efficiency."""
    timed = [*zip(labels(runs), runs, map(time_run, runs), strict=True)]
    found = []
    for name, run, timing in timed:
        rate, ranks = timing.edges_per_second, run.record.world_size
        alike = [
            (other, speed, its_name)
            for its_name, other, its_timing in timed
            if (speed := its_timing.edges_per_second) and _task(other) == _task(run)
        ]
        if rate is None or not alike:
            found.append(Compared(name, run, timing, None, None, None))
            continue
        fewest = min(other.record.world_size for other, _, _ in alike)
        smallest = [one for one in alike if one[0].record.world_size == fewest]
        same = [one for one in smallest if _engine(one[0]) == _engine(run)]
        _, base_rate, baseline = (same or smallest)[0]
        gain = rate / base_rate
        found.append(Compared(name, run, timing, baseline, gain, gain * fewest / ranks))
    return found


def _task(run: Run) -> tuple[int | None, str | None]:
    """Returns what must agree for a comparison to be about ranks alone."""
    return run.record.parameters, run.record.machine.accelerator


def _engine(run: Run) -> tuple[str, str | None]:
    return run.record.engine, run.record.engine_detail


def any_gain(compared: Sequence[Compared]) -> bool:
    """Whether any run is compared with another one."""
    return any(one.baseline not in (None, one.name) for one in compared)


def comparison_notes(compared: Sequence[Compared]) -> Iterator[str]:
    """Says what must be known of the comparison to read its figures."""
    for one in compared:
        if len(one.run.epochs) == 1:
            yield f"{one.name} has one finished epoch: its figures include the warm-up."
        if not one.run.epochs:
            yield f"{one.name} has no finished epoch yet: it has no figures."
    if len({_task(one.run) for one in compared}) > 1:
        yield "The runs differ in model or accelerator: only like is compared with like."


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def mean_shares(shares: Iterable[Shares | None]) -> Shares | None:
    """Returns the mean of those that are known; None where none is."""
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Shares(**{name: fmean(getattr(share, name) for share in known) for name in ACTIVITIES})


def share_cells(shares: Shares | None) -> dict[str, str]:
    """Returns the shares as cells by their columns."""
    return {f"{what} %": figures.share(getattr(shares, x, None)) for x, what in ACTIVITIES.items()}


def shares_plot(named: Iterable[tuple[str, Shares | None]]) -> Plot:
    """Makes a bar per run or series of the shares of its time."""
    known = [(name, shares) for name, shares in named if shares]
    bars = [
        Bars(what, [name for name, _ in known], [getattr(x, key) for _, x in known], number, "%")
        for number, (key, what) in enumerate(ACTIVITIES.items())
    ]
    return Plot("", ("%",), bars if known else (), bars="stack")


def time_limit(timing: Timing) -> list[str]:
    """Says where most of the time goes; nothing where shares are not known."""
    if timing.shares is None:
        return []
    shares = {what: getattr(timing.shares, key) for key, what in ACTIVITIES.items()}
    first, *others = sorted(shares, key=lambda name: -shares[name])
    rest = ", ".join(f"{name} {figures.share(shares[name])} %" for name in others)
    uneven = timing.imbalance is not None and timing.imbalance >= UNEVEN
    slowest = f" The slowest rank computes {timing.imbalance:.2f} times the mean." if uneven else ""
    return [f"Time: {first} takes {figures.share(shares[first])} % of it; {rest}.{slowest}"]
