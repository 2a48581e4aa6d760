"""The speed of a run, and where its time goes."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from bigtrk.records.metrics import Shares
from bigtrk.records.run_folder import Run
from bigtrk.reports import figures
from bigtrk.reports.document import Bars, Plot

TIMING_RULE = (
    "Times are medians over the epochs after the first, which warms up (shares: means; peak "
    "memory: the largest of all epochs). Validation is not counted."
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
