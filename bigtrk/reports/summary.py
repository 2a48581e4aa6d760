"""`bigtrk report`: the summary for programs (JSON) and for people (terminal)."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from bigtrk.records.run_folder import Run
from bigtrk.reports.elements.layout import at_width, show_header, show_table
from bigtrk.reports.facts import headers
from bigtrk.reports.norms import norms_entry
from bigtrk.reports.roofline import achieved
from bigtrk.reports.routed_events import imbalance, micro_steps, routes
from bigtrk.reports.scaling import SPEEDUP_RULE, TIMING_RULE, ScalingRow, Timing, compare
from bigtrk.reports.spikes import spikes
from bigtrk.reports.tables import make_tables


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns records, epochs, evaluations and comparison of `runs`, JSON-able (NaN is None)."""
    scaling = compare(runs)
    entries = [
        _entry(run, timing, row)
        for run, timing, row in zip(runs, scaling.timings, scaling.rows, strict=True)
    ]
    content: dict[str, Any] = {
        "rules": [TIMING_RULE, SPEEDUP_RULE],
        "notes": list(scaling.notes),
        "runs": entries,
    }
    summary: dict[str, Any] = finite(content)
    return summary


def show(runs: Sequence[Run], console: Console) -> None:
    """Prints headers and tables; elsewhere than on a terminal at a width of 100."""
    out = at_width(console)
    for title, facts in headers(runs):
        show_header(title, facts, out)
    for table in make_tables(runs, compare(runs)):
        show_table(table, out)


def _entry(run: Run, timing: Timing, row: ScalingRow) -> dict[str, Any]:
    on_gpus = achieved(run, timing)
    return {
        "run": row.run,
        "folder": str(run.folder),
        **run.record.model_dump(mode="json"),
        "steps": len(run.steps),
        "routes": routes(run),
        "micro_steps_per_step": micro_steps(run),
        "imbalance_of_steps": imbalance(run),
        "norms": norms_entry(run),
        "spikes": [step.step for step in spikes(run)],
        "epochs": [epoch.model_dump(mode="json") for epoch in run.epochs],
        "timing": {**asdict(timing), "shares": timing.shares and timing.shares.model_dump()},
        "achieved": on_gpus and asdict(on_gpus),
        "comparison": {
            "baseline": row.baseline,
            "speedup": row.speedup,
            "parallel_efficiency": row.efficiency,
        },
        "best": run.best and run.best.model_dump(mode="json"),
        "evaluations": [record.model_dump(mode="json") for record in run.evaluations],
    }


def finite(value: Any) -> Any:
    """Replaces NaN and infinity, which JSON does not know, by None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
