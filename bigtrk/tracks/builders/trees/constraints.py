"""Pairs of hits that no track holds both of.

Shapes: N hits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Values = NDArray[np.float64]

# Modules overlap: of 84,264 pairs of consecutive hits of a particle 13,451 lie in one layer, 10 mm
# apart at most, and never in one module.
REACH = 15.0  # mm


@dataclass(frozen=True)
class Constraints:
    """A particle crosses a module once, and a layer again only where its modules overlap: two hits
    of one module exclude each other, and two of one layer more than `reach` (mm) apart.

    position [N, 3] float64 (mm); modules [N, 3] int64 (volume, layer, module).
    """

    position: Values
    modules: Ids
    reach: float = REACH

    def allow(self, group: Sequence[int], other: Sequence[int]) -> bool:
        """Says whether one track may hold the hits of both groups."""
        a, b = np.array(group)[:, None], np.array(other)
        of_layer = (self.modules[a, :2] == self.modules[b, :2]).all(axis=-1)
        of_module = of_layer & (self.modules[a, 2] == self.modules[b, 2])
        x, y, z = np.moveaxis(self.position[a] - self.position[b], -1, 0)
        apart = x * x + y * y + z * z > self.reach * self.reach
        return not (of_module | (of_layer & apart)).any()
