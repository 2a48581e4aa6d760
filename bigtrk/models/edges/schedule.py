"""The layout of passes on a GPU's programs, which rows' width, type and number alone decide."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

WIDEST, MOST_LAYERS = 256, 3
# The size of a block of edges, which a program of the backward pass reads several times: the L2 of
# an A100 or H100 holds the blocks of all programs (two layers, hidden 128).
BLOCK_BYTES, BLOCK_ROWS = 2**15, 128
# Programs of a backward pass times the rows' width: enough for every GPU of today, with a few
# hundred MB of partial sums.
PROGRAMS = 2**16
SUM_WARPS = 1  # more would sum a row's tile in another order
SUMMED_BYTES = 128  # a line of a GPU's caches
REGISTERS = 255  # all of a thread's: the compiler alone may spill to stay below 168 or 128
# Rows whose width is no multiple are read feature by feature, which takes registers.
WHOLE_ROWS_MULTIPLE, WIDEST_WHOLE_ROWS, WIDEST_FLOAT32 = 16, 128, 64
# The forward pass over whole rows: tile, most tiles of a program, programs enough for a GPU.
FORWARD_HEIGHT, FORWARD_TILES, FORWARD_PROGRAMS = 64, 8, 1024
ROWS_STAGES = 2  # loads ahead in an encoder or decoder
SHARED_BYTES = 163 * 1024  # that a program may have on an A100
# The launch that sums the first weight's gradient.
SUM_ROWS_WARPS, SUM_STAGES = 8, 3
# Launches over nodes: loads ahead; warps and parts of rows of the one for weights' gradients.
NODE_STAGES, NODE_SUM_WARPS, NODE_PARTS = 2, 4, 64


class Tile(NamedTuple):
    """The tile of a program: `height` rows (twice as many in the forward pass) of `width`. depth:
    terms of a product that are read at once. side: of the squares in which a weight's gradient is
    summed. No kernel up to hidden 128 spills with these (tests/models/test_compiled_kernels.py).
    """

    width: int
    height: int
    depth: int
    side: int
    warps: int


class WholeRows(NamedTuple):
    """The tile of a backward pass over whole rows. sums_first: it also sums the first weight's
    gradient, as registers allow. sums_apart: it sums each layer's gradient in a launch of its own.
    """

    height: int
    warps: int
    sums_first: bool
    sums_apart: bool = False


@dataclass(frozen=True)
class Shape:
    """An MLP of edges: `inputs` is 2 where it reads the encoded edges and the state, else 1."""

    hidden: int
    layers: int
    inputs: int
    dtype: torch.dtype
    capability: int = 9

    @property
    def whole(self) -> WholeRows | None:
        """The tile of the backward pass over whole rows; None where products run through memory."""
        return whole_rows(self.hidden, self.layers, self.dtype, self.capability)

    @property
    def forward_rows(self) -> int:
        """The edges that a program of the forward pass computes at a time."""
        if self.whole:
            return rows_at_once(self.dtype)
        return node_tile(self.hidden, self.dtype).height

    def rows_of_program(self, n_edges: int) -> int:
        """Returns the edges of a program of the backward pass: whole tiles or blocks."""
        whole = self.whole
        step = whole.height if whole else block_rows(self.hidden, self.dtype)
        return step * max(1, -(-n_edges // (step * most_programs(self.hidden, self.dtype))))

    def programs(self, n_edges: int) -> int:
        """Returns the number of programs of the backward pass."""
        return -(-n_edges // self.rows_of_program(n_edges))

    @property
    def lines(self) -> int:
        """The rows [H] of a program's part of the weights' gradients: those of the first layer's
        columns for each input, of the other layers' weights, and of the biases of these layers.
        """
        return (self.inputs + self.layers - 1) * self.hidden + self.layers - 1


def tile(hidden: int, dtype: torch.dtype) -> Tile:
    """Returns the tile for rows [H] of `dtype`."""
    width = max(16, 1 << (hidden - 1).bit_length())
    # Products of float32 are not of tensor cores, and need more registers.
    side = min(width // 2, 32) if dtype == torch.float32 else min(width, 64)
    return Tile(width, 16, 16, max(16, side), max(2, min(width // 16, 8)))


def node_tile(hidden: int, dtype: torch.dtype) -> Tile:
    """Returns the tile for rows [H] of nodes in `dtype`; `height` rows of a weight's gradient."""
    size = tile(hidden, dtype)
    if dtype == torch.float32:
        return size
    depth, side, is_wide = min(size.width, 32), min(size.width, 64), hidden > WIDEST_WHOLE_ROWS
    return Tile(size.width, 32 if is_wide else 64, depth, side, 4 if size.width <= 64 else 8)


def rows_at_once(dtype: torch.dtype) -> int:
    """Returns the rows of a tile of the forward pass, and of the launch for the first weight."""
    return FORWARD_HEIGHT * 2 // dtype.itemsize


def are_whole(hidden: int, dtype: torch.dtype) -> bool:
    """Whether there are products of whole rows [H] of `dtype`."""
    widest = WIDEST_FLOAT32 if dtype == torch.float32 else WIDEST_WHOLE_ROWS
    return hidden <= widest and hidden % WHOLE_ROWS_MULTIPLE == 0


def whole_rows(hidden: int, layers: int, dtype: torch.dtype, capability: int) -> WholeRows | None:
    """Returns the tile of an MLP's backward pass; None if its products run through memory.
    capability: see `fused.capability`. From 9 on, products take 64 rows at a time; a GPU of 7 has
    too little shared memory for wide rows.
    """
    if not are_whole(hidden, dtype) or (hidden > 64 and capability < 8):
        return None
    if dtype == torch.float32:
        # The weights are twice as large, and products keep both parts of them.
        fits = hidden <= 32 or layers < 2 or capability >= (8 if layers < 3 else 9)
        tile = (16, 4) if hidden <= 32 else (16, 8)
        return WholeRows(*tile, sums_first=False) if fits else None
    hopper = capability >= 9
    if hidden <= 32:
        return WholeRows(64 if layers < 3 else 32, 4, sums_first=True)
    if hidden <= 64:
        if not hopper:
            return WholeRows(32, 4, sums_first=False)
        return WholeRows(128, 8, True) if layers < 3 else WholeRows(64, 8, sums_first=False)
    if layers > 2 and not hopper:
        return None
    height = 32 if hopper and hidden == WIDEST_WHOLE_ROWS else 16
    return WholeRows(height, 8, sums_first=False, sums_apart=layers > 2)


def rows_tile(
    hidden: int, n_inputs: int, layers: int, n_outputs: int, capability: int
) -> WholeRows | None:
    """Returns the tile of an encoder or decoder with `layers` of width `hidden` on a GPU of this
    `capability`; None if it has too few registers or too little shared memory. With 9 and 10 a GPU
    has 227 KiB of it. For 10, Triton 3.7 compiles larger tiles to nothing.
    """
    is_large, sums_apart = capability in (9, 10), layers > 3
    if n_inputs > hidden or (hidden > 64 and (sums_apart or not is_large)):
        return None
    if hidden > 64:
        return WholeRows(32, 8, True, sums_apart=layers > 2)
    if hidden <= 32 or not is_large:
        return WholeRows(32, 4, True, sums_apart or (hidden > 32 and layers > 2))
    if capability > 9:
        return WholeRows(64, 8, True, sums_apart)
    return WholeRows(128, 8, True, sums_apart or n_outputs > 1)


def forward_rows_of_program(n_rows: int) -> int:
    """Returns the edges of a program of the forward pass over whole rows."""
    tiles = n_rows // (FORWARD_HEIGHT * FORWARD_PROGRAMS)
    return FORWARD_HEIGHT * max(1, min(FORWARD_TILES, tiles))


def block_rows(hidden: int, dtype: torch.dtype) -> int:
    """Returns the edges of a block, for which a program keeps recomputed rows."""
    size = tile(hidden, dtype)
    fitting = BLOCK_BYTES // (size.width * dtype.itemsize)
    return max(size.height, min(BLOCK_ROWS, fitting))


def most_programs(hidden: int, dtype: torch.dtype) -> int:
    """Returns the most programs of the backward pass, which many edges nearly have."""
    return max(1, PROGRAMS // tile(hidden, dtype).width)


def summed_columns(hidden: int, dtype: torch.dtype) -> int:
    """Returns the columns, a power of two, that a program sums of rows [H]."""
    return min(1 << (hidden - 1).bit_length(), SUMMED_BYTES // dtype.itemsize)
