"""Measures how the memory of a training grows over its steps, with one heap for all threads, as
bigtrk has it (bigtrk/parallel/host.py), and with glibc's own number of heaps.

    python -m scripts.memory.heap_growth [--output FILE] [--publish]

Each training has one rank and 30 steps on three simulated events, whole or in sectors. The two
sides alternate, three trainings of each; figures are medians. `first` is the peak of the first
three steps, `last` that of all, `seconds` a step's without the first. The last line is one JSON
object: by how much the peak grows at most on each side, and the largest ratios of last peaks and of
seconds of one heap to several. Run it on an idle machine.
"""

import os
from collections.abc import Sequence

from bigtrk.process.heap import ARENAS
from scripts.memory.side_by_side import Case, Comparison, Row

ONE, SEVERAL = "one", "several"
# glibc has at most eight heaps for each core, and hence as many as a training has threads.
SIDES: dict[str, dict[str, str]] = {ONE: {}, SEVERAL: {ARENAS: str(8 * (os.cpu_count() or 1))}}
CASES = (
    Case(5400, hidden=16, layers=3, recompute="layer", sectors=2),
    Case(2900, hidden=32, layers=3, recompute="layer", sectors=2),
    Case(5400, hidden=64, layers=4, recompute="layer", sectors=4),
    Case(4100, hidden=32, layers=2, recompute="none", sectors=8),
    Case(4100, hidden=32, layers=2, recompute="none", sectors=1),
    Case(2300, hidden=64, layers=4, recompute="chunk", sectors=1),
)


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """Makes the last line."""

    def growth(side: str) -> float:
        return float(max(row[side]["last"] / row[side]["first"] for row in rows) - 1)

    def ratio(name: str) -> float:
        return float(max(row[ONE][name] / row[SEVERAL][name] for row in rows))

    return {
        "growth_one": growth(ONE),
        "growth_several": growth(SEVERAL),
        "peak_ratio": ratio("last"),
        "seconds_ratio": ratio("seconds"),
    }


def told(row: Row) -> str:
    """Writes a row as one line."""
    one, several = (row[side] for side in (ONE, SEVERAL))
    return (
        f"{row['particles']} particles, hidden {row['hidden']}, {row['recompute']}, "
        f"{row['sectors']} sectors: {one['first'] / 1e6:.0f} to {one['last'] / 1e6:.0f} MB with "
        f"one heap, {several['first'] / 1e6:.0f} to {several['last'] / 1e6:.0f} MB with several; "
        f"{one['seconds'] / several['seconds']:.2f} times as long"
    )


def main() -> None:
    described = __doc__.splitlines()[0] if __doc__ else ""
    Comparison("heap_growth", CASES, SIDES, summary, told).main(described)


if __name__ == "__main__":
    main()
