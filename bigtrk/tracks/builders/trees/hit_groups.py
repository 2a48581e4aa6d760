"""Groups of hits that may overlap, as candidates for tracks do, and sums over each group's hits."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bigtrk.tracks.builders.trees.constraints import Ids, Values


def ranges(first: Ids, size: Ids) -> Ids:
    """Lists first[c], first[c] + 1 ... of C ranges, one after another: [C], [C] -> [R]."""
    begin = np.cumsum(size) - size
    return np.repeat(first - begin, size) + np.arange(size.sum())


@dataclass(frozen=True)
class HitGroups:
    """C groups of at least one hit each, one after another in R rows: hit [R], size [C]."""

    hit: Ids
    size: Ids

    @cached_property
    def begin(self) -> Ids:
        """Returns each group's first row [C]."""
        return np.cumsum(self.size) - self.size

    def means(self, values: Values) -> Values:
        """Averages values over the rows of each group: [R] -> [C]."""
        return np.add.reduceat(values, self.begin) / self.size

    def spread(self, values: Values) -> Values:
        """Gives each row the value of its group: [C] -> [R]."""
        return np.repeat(values, self.size)

    def centred(self, values: Values) -> Values:
        """Subtracts from each row the mean of its group: [R] -> [R]."""
        return values - self.spread(self.means(values))
