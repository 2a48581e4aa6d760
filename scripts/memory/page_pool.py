"""Measures trainings on a CPU whose tensors take pages that others freed (bigtrk/parallel/
page_pool.py) beside the same ones whose large tensors come from the system each time.

    python -m scripts.memory.page_pool [--output FILE] [--publish]

Each training has one rank and 30 steps on three simulated events. The two sides alternate, three
trainings of each; figures are medians: the peak of all steps, and the seconds of a step without the
first. The last line is one JSON object: the least, the median and the largest ratio of seconds with
the pool to those without, and the largest ratio of peaks. Run it on an idle machine.
"""

from collections.abc import Sequence
from statistics import median

from bigtrk.parallel.host import FROM_SYSTEM
from bigtrk.process.heap import MMAP
from scripts.memory.side_by_side import Case, Comparison, Row

POOL, SYSTEM = "pool", "system"
SIDES: dict[str, dict[str, str]] = {POOL: {}, SYSTEM: {MMAP: str(FROM_SYSTEM)}}
_ATTENTION = "model.name=attention"
CASES = (
    Case(2900, hidden=64, layers=4, recompute="none"),
    Case(2900, hidden=64, layers=4, recompute="chunk"),
    Case(2900, hidden=64, layers=4, recompute="chunk", sectors=8),
    Case(2900, hidden=64, layers=3, recompute="none", more=(_ATTENTION,)),
    Case(2900, hidden=64, layers=3, recompute="none", sectors=4, more=(_ATTENTION,)),
)


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """Makes the last line."""
    seconds = [row[POOL]["seconds"] / row[SYSTEM]["seconds"] for row in rows]
    return {
        "least_seconds_ratio": min(seconds),
        "median_seconds_ratio": median(seconds),
        "largest_seconds_ratio": max(seconds),
        "largest_peak_ratio": max(row[POOL]["last"] / row[SYSTEM]["last"] for row in rows),
    }


def told(row: Row) -> str:
    """Writes a row as one line."""
    pool, system = (row[side] for side in (POOL, SYSTEM))
    return (
        f"{row['particles']} particles, hidden {row['hidden']}, {row['recompute']}, "
        f"{row['sectors']} sectors{''.join(f', {one}' for one in row['more'])}: "
        f"{pool['seconds']:.2f} s and {pool['last'] / 1e6:.0f} MB with the pool, "
        f"{system['seconds']:.2f} s and {system['last'] / 1e6:.0f} MB without"
    )


def main() -> None:
    described = __doc__.splitlines()[0] if __doc__ else ""
    Comparison("page_pool", CASES, SIDES, summary, told).main(described)


if __name__ == "__main__":
    main()
