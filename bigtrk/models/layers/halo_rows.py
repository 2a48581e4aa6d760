"""The halo rows of a sector's nodes, which may come while a layer computes what does not read them.

Shapes: N nodes of which the first n_owned are owned and the others halo, H = hidden.
"""

import torch
from torch import Tensor

from bigtrk.models.protocol import Arrival


class HaloRows:
    """Waits for the halo rows that are on their way."""

    def __init__(self) -> None:
        self._arrival: Arrival | None = None
        self._later: tuple[Tensor, Tensor] | None = None

    def expect(self, arrival: Arrival) -> None:
        self._arrival = arrival if arrival.is_awaited else None

    @property
    def are_awaited(self) -> bool:
        return self._arrival is not None

    def read(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Converts nodes [N, H], the halo rows when they are there."""
        read = x.to(dtype)
        if self.are_awaited and read is not x:
            self._later = x, read
        return read

    def wait(self, n_owned: int) -> None:
        """Returns when the halo rows are there."""
        if self._arrival is None:
            return
        self._arrival.wait()
        if self._later is not None:
            x, read = self._later
            read[n_owned:] = x[n_owned:]
        self._arrival = self._later = None
