"""Counts in bins of a particle's pT, or of eta: efficiencies and rates against them rest on these.

Shapes: V values, B bins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.overlaps import Ids

Floats = NDArray[np.float64]

PT_EDGES = tuple(round(10 ** (step / 6), 3) for step in range(-6, 10))  # GeV
ETA_EDGES = tuple(step / 2 for step in range(-8, 9))


@dataclass(frozen=True)
class BinnedRatio:
    """The number of values in each bin that count for a ratio: part, whole [B + 2] int64.

    edges: the B + 1 limits of the bins, ascending; the lower limit belongs to a bin, the upper one
    to the next. Place B counts values outside all bins, place B + 1 unknown ones (NaN).
    """

    edges: tuple[float, ...]
    part: Ids
    whole: Ids


Bins = dict[str, BinnedRatio]


def binned_ratio(
    values: Floats, counts: NDArray[np.bool_], edges: tuple[float, ...]
) -> BinnedRatio:
    """Bins all `values` [V] (whole) and those that `counts` [V] marks (part)."""
    places = _places(values, edges)
    length = len(edges) + 1
    part = np.bincount(places[counts], minlength=length)
    return BinnedRatio(edges, part, np.bincount(places, minlength=length))


def added(events: Sequence[Bins]) -> Bins:
    """Adds up events (at least one), leaving out what one of them lacks."""
    names = [name for name in events[0] if all(name in event for event in events)]
    return {name: _sum([event[name] for event in events]) for name in names}


def _sum(ratios: Sequence[BinnedRatio]) -> BinnedRatio:
    part, whole = (np.sum([getattr(x, name) for x in ratios], axis=0) for name in ("part", "whole"))
    return BinnedRatio(ratios[0].edges, part, whole)


def _places(values: Floats, edges: tuple[float, ...]) -> Ids:
    """Returns the place of each value among B + 2: [V] -> [V]."""
    bins = len(edges) - 1
    place = np.searchsorted(edges, values, side="right") - 1
    # Values above the bins, and NaN, are at `bins` by now.
    return np.where(np.isnan(values), bins + 1, np.where(place < 0, bins, place))
