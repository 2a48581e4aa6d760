"""How passes are laid on a GPU's programs; only the rows' width, type and number decide it."""

from typing import NamedTuple

import torch

# Rows whose width is not a multiple of MULTIPLE would be read feature by feature, which takes
# registers. The weights of a pass fill the shared memory of a program.
MULTIPLE, MOST_LAYERS = 16, 3
WIDEST = {torch.bfloat16: 128, torch.float32: 64}
# PROGRAMS: programs of a backward pass times the rows' width, enough for every GPU of today, with a
# few hundred MB of partial sums. TALLEST: rows of the largest tile.
PROGRAMS, TALLEST = 2**16, 128
SUM_WARPS = 1  # more would sum a row's tile in another order
SUMMED_BYTES = 128  # of a row that a program sums: a line of a GPU's caches
REGISTERS = 255  # most of a thread; left alone, the compiler may spill to stay below 168 or 128
# The forward pass: rows of bfloat16 of a tile, most tiles of a program, programs enough for a GPU.
FORWARD_HEIGHT, FORWARD_TILES, FORWARD_PROGRAMS = 64, 8, 1024
ROWS_STAGES = 2  # loads ahead in an encoder or decoder
SHARED_BYTES = 163 * 1024  # of shared memory that a program may have on an A100
SUM_ROWS_WARPS, SUM_STAGES = 8, 3  # for the launch that sums the first weight's gradient
# Launches over nodes: loads ahead; then, for weights' gradients, warps and parts of the rows.
NODE_STAGES, NODE_SUM_WARPS, NODE_PARTS = 2, 4, 64


class NodeTile(NamedTuple):
    """The tile of a program over nodes: `height` rows of `width`. depth: terms of a product read at
    once. side: side of the squares in which a weight's gradient is summed.
    """

    width: int
    height: int
    depth: int
    side: int
    warps: int


class WholeRows(NamedTuple):
    """The tile of a backward pass over whole rows. sums_first: it also sums the first weight's
    gradient, if registers suffice. sums_apart: each layer's gradient is summed in its own launch.
    No kernel spills with these (tests/models/test_compiled_kernels.py).
    """

    height: int
    warps: int
    sums_first: bool
    sums_apart: bool = False

    def launches(self, layers: int) -> list[tuple[tuple[bool, ...], int]]:
        """Lists, for each launch, the flags of layers whose gradients it sums, and the lowest layer
        that it propagates to. That is layer 0 in the last launch, which writes its gradient.
        """
        summed = [k for k in range(layers) if k or self.sums_first]
        apart = [[k] for k in summed]
        each = (apart[::-1] if self.sums_first else apart) if self.sums_apart else [summed]
        lowest = [*(ks[0] for ks in each[:-1]), 0]
        flags = [tuple(k in ks for k in range(layers)) for ks in each]
        return list(zip(flags, lowest, strict=True))


def width_of(hidden: int) -> int:
    """Returns the width of a tile for rows [H]: the next power of two, at least 16."""
    return max(16, 1 << (hidden - 1).bit_length())


def node_tile(hidden: int, dtype: torch.dtype) -> NodeTile:
    """Returns the tile for node rows [H] in `dtype`; sums of weights read `height` rows at once."""
    width = width_of(hidden)
    if dtype == torch.float32:
        return NodeTile(width, 16, 16, max(16, min(width // 2, 32)), max(2, width // 16))
    return NodeTile(width, 64, min(width, 32), min(width, 64), 4 if width <= 64 else 8)


def rows_at_once(dtype: torch.dtype) -> int:
    """Returns the rows of a tile in the forward pass and in the first weight's launch."""
    return FORWARD_HEIGHT * 2 // dtype.itemsize


def layer_tile(hidden: int, layers: int, dtype: torch.dtype, capability: int) -> WholeRows | None:
    """Returns the tile of a layer's backward pass; None if a GPU has too little memory or too few
    registers for it, so that torch computes it. capability: see `fused.capability`. From 9 on,
    products take 64 rows at a time; a GPU of 7 has too little shared memory for wide rows.
    """
    fits = hidden % MULTIPLE == 0 and hidden <= WIDEST.get(dtype, 0) and layers <= MOST_LAYERS
    hopper = capability >= 9
    if not fits or (hidden > 64 and capability < 8):
        return None
    if dtype == torch.float32:
        # The weights are twice as large, and products keep both parts of them. For 10, Triton 3.7
        # keeps up to 24 bytes of a thread's registers in memory, in any layout that was tried.
        fits = hidden <= 32 or layers < 2 or capability in ((8, 9) if layers < 3 else (9,))
        tile = (16, 4) if hidden <= 32 else (16, 8)
        return WholeRows(*tile, sums_first=False) if fits else None
    if hidden <= 32:
        return WholeRows(64 if layers < 3 else 32, 4, sums_first=True)
    if hidden <= 64:
        if not hopper:
            return WholeRows(32, 4, sums_first=False)
        return WholeRows(128, 8, True) if layers < 3 else WholeRows(64, 8, sums_first=False)
    if layers > 2 and not hopper:
        return None
    height = 32 if hopper and hidden == 128 else 16
    return WholeRows(height, 8, sums_first=False, sums_apart=layers > 2)


def rows_tile(
    hidden: int, n_inputs: int, layers: int, n_outputs: int, capability: int
) -> WholeRows | None:
    """Returns the tile of an encoder or decoder with `layers` of width `hidden` on a GPU of this
    `capability`; None if it has too few registers or too little shared memory. At 9 and 10 a GPU
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
    """Returns how many edges a program of the forward pass computes."""
    tiles = n_rows // (FORWARD_HEIGHT * FORWARD_PROGRAMS)
    return FORWARD_HEIGHT * max(1, min(FORWARD_TILES, tiles))


def rows_of_program(n_rows: int, hidden: int, height: int) -> int:
    """Returns how many rows a program of the backward pass computes: whole tiles of `height`."""
    return height * max(1, -(-n_rows // (height * most_programs(hidden))))


def most_programs(hidden: int) -> int:
    """Returns the largest number of programs of the backward pass; many edges nearly reach it."""
    return max(1, PROGRAMS // width_of(hidden))


def summed_columns(hidden: int, dtype: torch.dtype) -> int:
    """Returns how many columns of rows [H] a program sums: a power of two."""
    return min(1 << (hidden - 1).bit_length(), SUMMED_BYTES // dtype.itemsize)
