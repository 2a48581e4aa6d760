"""The stores of edge states: where rows [E, H] are kept between layers, and how passes read them.

A pass goes through the rows block by block. In memory there is one block, of all rows; other stores
bring a block to the device ahead of its use and take what was made away behind it.

Shapes: E edges, H = hidden, M rows of a block.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Rows = Any  # what a store made by `new`: a tensor, or the place of one


class Block(NamedTuple):
    """Rows `rows` of a pass: tensors [M, W] to read, and others to fill, which are then kept."""

    rows: slice
    read: list[Tensor]
    made: list[Tensor]


class EdgeStore(Protocol):
    """Keeps rows of edges until nothing refers to them any more."""

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Rows:
        """Makes room for rows [n_rows, width] of any content, which passes on `device` use.

        Raises:
            InputError: there is no room.
        """

    def blocks(self, n_rows: int, read: Sequence[Rows], made: Sequence[Rows]) -> Iterator[Block]:
        """Yields the blocks of a pass in their order; rows may be both read and made, since a block
        is read before it is filled.

        Raises:
            InputError: rows cannot be read or kept.
        """


class MemoryStore:
    """Keeps rows in the memory of the device."""

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Makes a tensor [n_rows, width]."""
        return torch.empty(n_rows, width, dtype=dtype, device=device)

    def blocks(
        self, n_rows: int, read: Sequence[Tensor], made: Sequence[Tensor]
    ) -> Iterator[Block]:
        """Yields one block of all rows."""
        yield Block(slice(0, n_rows), list(read), list(made))
