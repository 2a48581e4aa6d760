"""Tables of the faults that trainings survive, and of what they hold over time."""

from typing import Any

from scripts.docs.table import Table, span
from scripts.faults.faults import FAULTS


def faults(found: Any) -> Table:
    """Counts rounds by fault."""
    by_fault: dict[str, list[Any]] = {name: [] for name in FAULTS}
    for outcome in found["outcomes"]:
        by_fault.setdefault(outcome["plan"]["fault"], []).append(outcome)
    rows = [
        [
            name,
            str(len(rounds)),
            str(sum(one["detected"] for one in rounds)),
            str(sum(one["lost"] for one in rounds)),
            str(max(one["again"] for one in rounds)),
            f"{max(one['seconds'] for one in rounds):.0f}",
            str(sum(bool(one["wrong"]) for one in rounds)),
        ]
        for name, rounds in by_fault.items()
        if rounds
    ]
    columns = (
        "fault", "rounds", "detected", "steps lost", "again at most", "seconds at most",
        "wrong after",
    )  # fmt: skip
    return Table(columns, rows)


def soak(found: Any) -> Table:
    """Lists what each rank held after the warm-up."""
    trends, processes = found["trends"], found["summary"]["processes"]
    n_ranks = len(trends["memory"])
    rows = [
        ["memory, MiB", *(span(one["low"], one["high"], 1) for one in trends["memory"])],
        [
            "its slope, MiB per 1,000 steps",
            *(f"{1e3 * one['slope']:.2f} ± {1e3 * one['error']:.2f}" for one in trends["memory"]),
        ],
        *(
            [label, *(span(one["low"], one["high"]) for one in trends[kind])]
            for kind, label in (
                ("handles", "open handles"),
                ("mapped", "mapped files"),
                ("threads", "threads"),
            )
        ),
        [
            "processes, with the launcher",
            span(processes["low"], processes["high"]),
            *[""] * (n_ranks - 1),
        ],
    ]
    return Table(("", *(f"rank {rank}" for rank in range(n_ranks))), rows)
