"""Tables of exchange with other software, and of large events."""

from statistics import median
from typing import Any

from scripts.docs.table import Table


def interop(found: Any) -> Table:
    """Lists the result of each check of exchange with other software."""
    return Table(
        ("check", "result", "measured"),
        [[one["name"], _outcome(one), _found(one["found"])] for one in found["outcomes"]],
        texts=3,
    )


def large_events(found: Any) -> Table:
    """Lists the seconds that each stage takes to start and with large events, its memory, and the
    worst ratio of times per edge.
    """
    rows, ratios = found["rows"], found["summary"]["ratios"]
    stages = [
        [
            stage,
            f"{median(row['stages'][stage]['start'] for row in rows):.1f} s",
            *(_took(row["stages"][stage]) for row in rows),
            f"{ratios[stage]:.2f}",
        ]
        for stage in ratios
    ]
    metis = ["partition: METIS alone", "", *(f"{row['metis_seconds']:.1f} s" for row in rows), ""]
    after = [row[0] for row in stages].index("partition") + 1
    hits = ["hits", "", *(f"{row['hits']:,}" for row in rows), ""]
    columns = ("", "start", *(f"{row['edges'] / 1e6:.1f} M edges" for row in rows), "ratio")
    return Table(columns, [hits, *stages[:after], metis, *stages[after:]])


def _took(stage: Any) -> str:
    """Writes the seconds and the memory of a process."""
    return f"{stage['seconds']:.1f} s, {stage['bytes'] / 2**30:.1f} GiB"


def _outcome(one: Any) -> str:
    return "skipped" if one["skipped"] else "failed" if one["failed"] else "passed"


def _found(values: dict[str, float]) -> str:
    named = {name.replace("read_s", "seconds").replace("_", " "): x for name, x in values.items()}
    return ", ".join(f"{name} {value:.1g}" for name, value in named.items())
