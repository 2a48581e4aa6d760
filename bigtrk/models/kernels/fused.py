"""Launches a layer's whole passes over its edges on GPUs (triton_edges.py, triton_partials.py).

schedule.py says how their work is laid on programs, work.py what they compute and move.

Shapes: M edges, N nodes, H = hidden.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.models.kernels import counted, triton_passes
from bigtrk.models.kernels.plain import Ends
from bigtrk.models.kernels.schedule import (
    BACKWARD_STAGES,
    MOST_LAYERS,
    REGISTERS,
    SUM_WARPS,
    WIDEST,
    block_rows,
    forward_rows,
    partial_lines,
    rows_of_program,
    tile,
)
from bigtrk.models.kernels.tuning import forward_stages
from bigtrk.models.kernels.work import (
    SOURCES_AGAIN_BACKWARD,
    SOURCES_AGAIN_FORWARD,
    Shape,
    assumed_ends,
)


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
    fits = hidden <= WIDEST and layers <= MOST_LAYERS and dtype in triton_passes.TYPES
    if counted.counts(device):
        return fits
    return fits and triton_passes.usable(device, dtype)


def forward(inputs: Sequence[Tensor], ends: Ends, weights: Sequence[Tensor], made: Tensor) -> None:
    """Makes the next state of edges, [M, H], of `inputs`: their state, and the encoded edges if the
    layer reads them.

    weights: in turn the linear layers' weights and biases, the first bias in `ends`. `made` may be
    the state.
    """
    n_rows, hidden = made.shape
    if counted.counts(made.device):
        nodes = assumed_ends(len(ends.of_source), n_rows, SOURCES_AGAIN_FORWARD)
        counted.note(_shape(inputs, weights).forward(n_rows, nodes))
        return
    from bigtrk.models.kernels import triton_edges

    size = tile(hidden, made.dtype)
    height = forward_rows(hidden, made.dtype)
    first, others = weights[0].detach(), _others(weights)

    def launch(n_rows: int, made: Tensor, stages: int) -> None:
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
            num_stages=stages,
            maxnreg=REGISTERS,
        )

    with torch.cuda.device_of(made):
        launch(n_rows, made, forward_stages(_shape(inputs, weights), made, launch))


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
    (n_rows, hidden), shape = gradient.shape, _shape(inputs, weights)
    size, block = tile(hidden, gradient.dtype), block_rows(hidden, gradient.dtype)
    partials, normals, scales = _scratch(shape, gradient, block)
    if counted.counts(gradient.device):
        nodes = assumed_ends(len(ends.of_source), n_rows, SOURCES_AGAIN_BACKWARD)
        counted.note(shape.backward(n_rows, nodes, given=given is not None))
        counted.note(shape.sum_partials(n_rows, adds=adds))
        return
    from bigtrk.models.kernels import triton_edges

    first, others = weights[0].detach(), _others(weights)
    with torch.cuda.device_of(gradient):
        triton_edges.backward[(len(partials),)](
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
            rows_of_program(n_rows, hidden, gradient.dtype),
            partials.shape[1],
            first.stride(0),
            given.of_state.stride(0) if given else hidden,
            layers=shape.layers,
            hidden=hidden,
            width=size.width,
            height=size.height,
            depth=size.depth,
            side=size.side,
            block=block,
            num_warps=size.warps,
            num_stages=BACKWARD_STAGES,
            maxnreg=REGISTERS,
        )
        _sum_partials(partials, grads, len(inputs), adds)


def _scratch(shape: Shape, gradient: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Makes room for the programs' parts of the weights' gradients, and for what each keeps of a
    block: its normalised rows and their scales.
    """
    programs, kept = shape.programs(len(gradient)), shape.layers - 1
    lines = partial_lines(shape.inputs, shape.layers, shape.hidden)
    partials = gradient.new_empty(programs, lines, shape.hidden, dtype=torch.float32)
    normals = gradient.new_empty(programs, kept, block, shape.hidden)
    return partials, normals, partials.new_empty(programs, kept, block)


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
        num_warps=SUM_WARPS,
    )


def _shape(inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> Shape:
    return Shape(inputs[0].shape[1], len(weights) // 2, len(inputs), inputs[0].dtype)


def _inputs(inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Returns the edges' state and the encoded edges, if they are read."""
    state, *encoded = inputs
    return state, encoded[0] if encoded else None


def _others(weights: Sequence[Tensor]) -> list[Tensor | None]:
    """Returns weight and bias of the second and of the third layer."""
    others: list[Tensor | None] = [weight.detach() for weight in weights[2:]]
    return others + [None] * (2 * MOST_LAYERS - 2 - len(others))
