"""Launches a layer's whole passes over its edges on GPUs (triton_edges.py, triton_partials.py).

What fixes the order of a sum is a function of the rows' width, their type and their number, never
of a measurement.

Shapes: M edges, N nodes, H = hidden.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.models.kernels import triton_passes
from bigtrk.models.kernels.plain import Ends

WIDEST, MOST_LAYERS = 256, 3
BLOCK = 256  # edges of which a program of the backward pass keeps what it computes anew
# Their programs times the rows' width: enough for every GPU of today, and their partial sums of
# the weights' gradients stay a few hundred MB.
PROGRAMS = 2**16


class Tile(NamedTuple):
    """The tile of a program: its rows are `width` wide, and it takes `height` of them at a time,
    twice as many in the forward pass.

    depth: the terms of a product that are read at a time. side: a weight's gradient is summed in
    squares of so many rows. With these no kernel up to hidden 128 needs more registers than a
    thread has (tests/models/test_compiled_kernels.py).
    """

    width: int
    height: int
    depth: int
    side: int
    warps: int


# All of a thread's registers: by itself the compiler may spill to stay below 168 or 128.
REGISTERS = 255
BACKWARD_STAGES = 1  # loads ahead of their use take registers, too


class NextLayer(NamedTuple):
    """Gives the gradient of a layer's edges.

    after [M, H]: the gradient of the next layer's first product; of_state [H, H]: the weight of
    that for the edges; outer: what both ends add.
    """

    after: Tensor
    of_state: Tensor
    outer: Ends


def usable(device: torch.device, dtype: torch.dtype, hidden: int, layers: int) -> bool:
    """Says whether these passes compute an MLP of so many `layers` on rows of `dtype`."""
    fits = hidden <= WIDEST and layers <= MOST_LAYERS
    return fits and triton_passes.usable(device, dtype)


def tile(hidden: int, dtype: torch.dtype) -> Tile:
    """Returns the tile for rows [H] of `dtype`."""
    width = max(16, 1 << (hidden - 1).bit_length())
    # Products of float32 are not of tensor cores, and need more registers.
    side = min(width // 2, 32) if dtype == torch.float32 else min(width, 64)
    return Tile(width, 16, 16, max(16, side), max(2, min(width // 16, 8)))


def forward(inputs: Sequence[Tensor], ends: Ends, weights: Sequence[Tensor], made: Tensor) -> None:
    """Makes the next state of edges, [M, H], of `inputs`: their state, and the encoded edges if the
    layer reads them.

    weights: in turn the linear layers' weights and biases, the first bias in `ends`. `made` may be
    the state.
    """
    from bigtrk.models.kernels import triton_edges

    n_rows, hidden = made.shape
    size = tile(hidden, made.dtype)
    height = 2 * size.height
    first, others = weights[0].detach(), _others(weights)
    with torch.cuda.device_of(made):
        triton_edges.forward[(-(-n_rows // height),)](
            *_inputs(inputs),
            *ends[:4],
            first,
            *others,
            made,
            n_rows,
            first.stride(0),
            layers=len(weights) // 2,
            hidden=hidden,
            width=size.width,
            height=height,
            depth=size.depth,
            num_warps=size.warps,
            maxnreg=REGISTERS,
        )


def backward(
    inputs: Sequence[Tensor],
    ends: Ends,
    weights: Sequence[Tensor],
    made: Tensor,
    given: NextLayer | None,
    gradient: Tensor,
    grads: Sequence[Tensor],
    adds: bool,
) -> None:
    """Writes the gradient [M, H] of the edges' first product, which may be what was `made`: the
    edges' state or, where nothing else is `given`, the gradient of the last product.

    `grads` are ordered like the weights. Those of the weights are written, or with `adds` added to
    what is there; of the first one the inputs' columns, and not its bias's.
    """
    from bigtrk.models.kernels import triton_edges

    n_rows, hidden = gradient.shape
    layers, size = len(weights) // 2, tile(hidden, gradient.dtype)
    rows_of_program = BLOCK * max(1, -(-n_rows // (BLOCK * (PROGRAMS // size.width))))
    programs = -(-n_rows // rows_of_program)
    n_lines = (len(inputs) + layers - 1) * hidden + layers - 1
    partials = gradient.new_empty(programs, n_lines, hidden, dtype=torch.float32)
    normals = gradient.new_empty(programs, layers - 1, BLOCK, hidden)
    scales = partials.new_empty(programs, layers - 1, BLOCK)
    first, others = weights[0].detach(), _others(weights)
    with torch.cuda.device_of(gradient):
        triton_edges.backward[(programs,)](
            *_inputs(inputs),
            *ends[:4],
            *(given[:2] if given else (None, None)),
            *(given.outer[:2] if given else (None, None)),
            made,
            gradient,
            first,
            *others[:-1],
            normals,
            scales,
            partials,
            n_rows,
            rows_of_program,
            n_lines,
            first.stride(0),
            given.of_state.stride(0) if given else hidden,
            layers=layers,
            hidden=hidden,
            width=size.width,
            height=size.height,
            depth=size.depth,
            side=size.side,
            block=BLOCK,
            num_warps=size.warps,
            num_stages=BACKWARD_STAGES,
            maxnreg=REGISTERS,
        )
        _sum_partials(partials, grads, len(inputs), adds)


def _sum_partials(partials: Tensor, grads: Sequence[Tensor], inputs: int, adds: bool) -> None:
    """Writes or adds the sums of the programs' parts [programs, lines, H] to the weights' `grads`,
    of a first layer that reads so many `inputs`.
    """
    from bigtrk.models.kernels import triton_partials

    programs, n_lines, hidden = partials.shape
    triton_partials.sum_partials[(n_lines,)](
        partials,
        grads[0],
        *_others(grads),
        programs,
        n_lines,
        grads[0].stride(0),
        adds=adds,
        inputs=inputs,
        layers=len(grads) // 2,
        hidden=hidden,
        width=tile(hidden, partials.dtype).width,
        num_warps=1,
    )


def _inputs(inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Returns the edges' state and the encoded edges, if they are read."""
    state, *encoded = inputs
    return state, encoded[0] if encoded else None


def _others(weights: Sequence[Tensor]) -> list[Tensor | None]:
    """Returns weight and bias of the second and of the third layer."""
    others: list[Tensor | None] = [weight.detach() for weight in weights[2:]]
    return others + [None] * (2 * MOST_LAYERS - 2 - len(others))
