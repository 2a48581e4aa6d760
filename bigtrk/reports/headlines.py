"""The numbers of a run that count, and what limits its speed and its results."""

from collections.abc import Sequence

from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.first_screen import Headline
from bigtrk.reports.evaluation.headlines import (
    edge_headlines,
    evaluation_headlines,
    evaluation_verdict,
)
from bigtrk.reports.scaling import Scaling, Timing

UNEVEN = 1.1  # imbalance from which the slowest rank is worth a word


def run_headlines(runs: Sequence[Run], scaling: Scaling) -> list[tuple[str, list[Headline]]]:
    """Lists each run's numbers: of its newest evaluation, or else of its last validation; then its
    speed and its memory.
    """
    named = zip(labels(runs), runs, scaling.timings, strict=True)
    return [(name, [*_results(run), *_speed(run, timing)]) for name, run, timing in named]


def run_verdicts(runs: Sequence[Run], scaling: Scaling) -> list[str]:
    """Says of each run what limits its tracks, where they were judged, and its speed."""
    told = []
    for name, run, timing in zip(labels(runs), runs, scaling.timings, strict=True):
        newest = newest_evaluation(run)
        own = [*(evaluation_verdict(newest) if newest else ()), *time_limit(timing)]
        told += [f"{name}: {each}" if len(runs) > 1 else each for each in own]
    return told


def time_limit(timing: Timing) -> list[str]:
    """Says where most of the time goes; nothing where shares are not known."""
    if timing.shares is None:
        return []
    shares = {
        "compute": timing.shares.compute,
        "exchange": timing.shares.exchange,
        "reduction": timing.shares.reduce,
        "data": timing.shares.data,
    }
    first, *others = sorted(shares, key=lambda name: -shares[name])
    rest = ", ".join(f"{name} {figures.share(shares[name])} %" for name in others)
    uneven = timing.imbalance is not None and timing.imbalance >= UNEVEN
    slowest = f" The slowest rank computes {timing.imbalance:.2f} times the mean." if uneven else ""
    return [f"Time: {first} takes {figures.share(shares[first])} % of it; {rest}.{slowest}"]


def newest_evaluation(run: Run) -> EvaluationRecord | None:
    """Returns the evaluation that was made last, if any was."""
    return max(run.evaluations, key=lambda record: record.made, default=None)


def _results(run: Run) -> list[Headline]:
    newest = newest_evaluation(run)
    if newest:
        return evaluation_headlines(newest)
    validated = [epoch.validation for epoch in run.epochs if epoch.validation]
    return edge_headlines(validated[-1]) if validated else []


def _speed(run: Run, timing: Timing) -> list[Headline]:
    known = []
    if timing.edges_per_second is not None:
        rates = [epoch.edges_per_second for epoch in run.epochs[1:] or run.epochs]
        spread = f"{figures.rate(min(rates))} to {figures.rate(max(rates))}; by epochs"
        known.append(Headline("edges/s", figures.rate(timing.edges_per_second), spread))
    if timing.peak_memory_bytes is not None:
        known.append(Headline("peak memory", figures.memory(timing.peak_memory_bytes)))
    return known
