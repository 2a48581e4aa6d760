"""The bytes of a rank's activations, by the count of a pass like its own."""

from collections.abc import Callable

import numpy as np

from bigtrk.cost.event_size import SectorSize
from bigtrk.cost.footprint import Columns, Footprint

# Sectors of a rank that are counted at once, at most: a pass over many takes seconds.
_COUNTED_SECTORS = 3
# Of a count for a GPU's small graphs, at least.
_FEWEST_ROWS = 64

# Counts a pass over so many sectors at once, of at most so many rows, or of many.
Count = Callable[[int, int | None], Footprint]


def activations(count: Count, size: SectorSize, sectors: int) -> tuple[float, float]:
    """Returns the bytes of so many sectors of a rank saved between forward and backward, and at the
    peak. Both grow by as much with each sector beyond a few, which are counted.
    """
    sizes, few = columns(size), min(sectors, _COUNTED_SECTORS)
    rows = _most_rows(size, count(1, None))
    counted = count(few, rows)
    saved, peak = float(counted.saved @ sizes), float((counted.live @ sizes).max())
    if sectors > few:
        # Constants are of chunks, which sectors use in turn.
        growing, fewer = sizes * (1, 1, 1, 0), count(few - 1, rows)
        saved += (sectors - few) * float((counted.saved - fewer.saved) @ growing)
        more = (counted.live @ growing).max() - (fewer.live @ growing).max()
        peak += (sectors - few) * float(more)
    return saved, peak


def _most_rows(size: SectorSize, of_many: Footprint) -> int | None:
    """Returns the power of two that a sector's rows are at most, where they are too few to be
    counted as many are: on a GPU 1,000 edges were predicted to take 900 MiB of chunks, and took 5.
    """
    most = max(_FEWEST_ROWS, 1 << int(max(size.edges, size.nodes)).bit_length())
    return most if of_many.busy_rows and most <= of_many.busy_rows else None


def columns(size: SectorSize) -> Columns:
    """Returns what a footprint's columns are multiplied by."""
    return np.array([size.edges, size.nodes, size.owned, 1.0])
