"""Launches a layer's whole passes over its edges on GPUs (triton_whole_rows.py, triton_edges.py,
triton_partials.py).

schedule.py says which, and how their work is laid on programs, work.py what they compute and move.

Shapes: M edges, N nodes, H = hidden.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.models.edges import counted, triton_passes
from bigtrk.models.edges.plain import Ends
from bigtrk.models.edges.schedule import (
    BACKWARD_STAGES,
    FORWARD_HEIGHT,
    MOST_LAYERS,
    REGISTERS,
    SUM_HEIGHT,
    SUM_ROWS_WARPS,
    SUM_STAGES,
    SUM_WARPS,
    WIDEST,
    WholeRows,
    are_whole,
    block_rows,
    forward_rows_of_program,
    partial_lines,
    sum_products_warps,
    tile,
    whole_rows_forward_warps,
)
from bigtrk.models.edges.tuning import forward_stages
from bigtrk.models.edges.work import (
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

    weights: in turn the linear layers' weights and biases, the first bias in `ends`; where rows are
    whole the weights are of their type. `made` may be the state.
    """
    (n_rows, hidden), shape = made.shape, shape_of(inputs, weights)
    if counted.counts(made.device):
        nodes = assumed_ends(len(ends.of_source), n_rows, SOURCES_AGAIN_FORWARD)
        counted.note(shape.forward(n_rows, nodes))
        return
    if shape.whole:
        _forward_of_whole_rows(inputs, ends, weights, made)
        return
    from bigtrk.models.edges import triton_edges

    size, height = tile(hidden, made.dtype), shape.forward_rows
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
        launch(n_rows, made, forward_stages(shape, made, launch))


def _forward_of_whole_rows(
    inputs: Sequence[Tensor], ends: Ends, weights: Sequence[Tensor], made: Tensor
) -> None:
    from bigtrk.models.edges import triton_whole_rows

    n_rows, hidden = made.shape
    of_program = forward_rows_of_program(n_rows)
    with torch.cuda.device_of(made):
        triton_whole_rows.whole_forward[(-(-n_rows // of_program),)](
            *_inputs(inputs),
            *ends[:4],
            weights[0].detach(),
            *_others(weights),
            made,
            n_rows,
            of_program,
            weights[0].stride(0),
            layers=len(weights) // 2,
            hidden=hidden,
            width=tile(hidden, made.dtype).width,
            height=FORWARD_HEIGHT,
            num_warps=whole_rows_forward_warps(hidden),
            num_stages=1,
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
    n_rows, shape = len(gradient), shape_of(inputs, weights)
    partials = _new_partials(shape, gradient)
    work = _Backward(shape, inputs, ends, weights, made, given, gradient, partials)
    scratch = None if shape.whole else _scratch(work)
    if counted.counts(gradient.device):
        nodes = assumed_ends(len(ends.of_source), n_rows, SOURCES_AGAIN_BACKWARD)
        counted.note(shape.backward(n_rows, nodes, given=given is not None))
        counted.note(shape.sum_partials(n_rows, adds=adds))
        return
    with torch.cuda.device_of(gradient):
        if scratch:
            _launch_through_memory(work, *scratch)
        else:
            _launch_whole_rows(work)
        _sum_partials(partials, grads, len(inputs), adds)


class _Backward(NamedTuple):
    """The arguments of `backward`, and its programs' parts of the weights' gradients."""

    shape: Shape
    inputs: Sequence[Tensor]
    ends: Ends
    weights: Sequence[Tensor]
    made: Tensor
    given: NextLayer | None
    gradient: Tensor
    partials: Tensor

    @property
    def tensors(self) -> list[Tensor | None]:
        """Lists what both kernels read and write, in their order, up to the weights."""
        given = [*self.given[:2], *self.given.outer[:2]] if self.given else [None] * 4
        return [*_inputs(self.inputs), *self.ends[:4], *given, self.made, self.gradient]

    @property
    def read_weights(self) -> list[Tensor | None]:
        """Lists the weights and biases that are read again: not the last bias."""
        return [self.weights[0].detach(), *_others(self.weights)[:-1]]

    @property
    def sizes(self) -> list[int]:
        """Lists the edges, those of a program, the lines of its part, and the weights' strides."""
        n_rows, hidden = self.gradient.shape
        of_state = self.given.of_state.stride(0) if self.given else hidden
        of_program, n_lines = self.shape.rows_of_program(n_rows), self.partials.shape[1]
        return [n_rows, of_program, n_lines, self.weights[0].stride(0), of_state]


def _launch_through_memory(work: _Backward, normals: Tensor, scales: Tensor) -> None:
    from bigtrk.models.edges import triton_edges

    hidden, dtype = work.shape.hidden, work.gradient.dtype
    size = tile(hidden, dtype)
    triton_edges.backward[(len(work.partials),)](
        *work.tensors,
        *work.read_weights,
        normals,
        scales,
        work.partials,
        *work.sizes,
        layers=work.shape.layers,
        hidden=hidden,
        width=size.width,
        height=size.height,
        depth=size.depth,
        side=size.side,
        block=block_rows(hidden, dtype),
        num_warps=size.warps,
        num_stages=BACKWARD_STAGES,
        maxnreg=REGISTERS,
    )


class _Sums(NamedTuple):
    """The layers whose weights' gradients a launch over whole rows sums."""

    sums_first: bool
    sums_second: bool
    sums_third: bool


def _launches(whole: WholeRows, layers: int) -> list[_Sums]:
    """Lists the launches of a backward pass over whole rows; the last one writes the gradient."""
    if whole.sums_apart:
        return [_Sums(False, True, False), _Sums(whole.sums_first, False, True)]
    return [_Sums(whole.sums_first, layers > 1, layers > 2)]


def _launch_whole_rows(work: _Backward) -> None:
    from bigtrk.models.edges import triton_whole_rows

    shape, whole = work.shape, work.shape.whole
    assert whole is not None
    width = tile(shape.hidden, shape.dtype).width
    for sums in _launches(whole, shape.layers):
        triton_whole_rows.whole_backward[(len(work.partials),)](
            *work.tensors,
            *work.read_weights,
            work.partials,
            *work.sizes,
            layers=shape.layers,
            hidden=shape.hidden,
            width=width,
            height=whole.height,
            **sums._asdict(),
            num_warps=whole.warps,
            num_stages=1,
            maxnreg=REGISTERS,
        )
    if whole.sums_first:
        return
    triton_whole_rows.sum_inputs[(len(work.partials), len(work.inputs))](
        *_inputs(work.inputs),
        work.gradient,
        work.partials,
        *work.sizes[:3],
        hidden=shape.hidden,
        width=width,
        height=SUM_HEIGHT,
        num_warps=SUM_ROWS_WARPS,
        num_stages=SUM_STAGES,
    )


def _new_partials(shape: Shape, gradient: Tensor) -> Tensor:
    """Makes room for the programs' parts of the weights' gradients."""
    lines = partial_lines(shape.inputs, shape.layers, shape.hidden)
    programs = shape.programs(len(gradient))
    return gradient.new_empty(programs, lines, shape.hidden, dtype=torch.float32)


def _scratch(work: _Backward) -> tuple[Tensor, Tensor]:
    """Makes room for what each program keeps of a block: its normalised rows and their scales."""
    gradient, partials, shape = work.gradient, work.partials, work.shape
    block = block_rows(shape.hidden, gradient.dtype)
    normals = gradient.new_empty(len(partials), shape.layers - 1, block, shape.hidden)
    return normals, partials.new_empty(len(partials), shape.layers - 1, block)


def sum_products(rows: Sequence[Tensor], weights: Sequence[Tensor], made: Tensor) -> bool:
    """Makes the sum [M, H] of the products of each `rows` [M, H] and its weight [H, H], if there is
    a launch for it; all weights have rows of one stride.
    """
    n_rows, hidden = made.shape
    if not are_whole(hidden, made.dtype):
        return False
    if counted.counts(made.device):
        counted.note(Shape(hidden, 1, 1, made.dtype).sum_products(n_rows, len(rows)))
        return True
    if not triton_passes.usable(made.device, made.dtype):
        return False
    from bigtrk.models.edges import triton_whole_rows

    [stride] = {weight.stride(0) for weight in weights}
    with torch.cuda.device_of(made):
        triton_whole_rows.sum_products[(-(-n_rows // FORWARD_HEIGHT),)](
            tuple(rows),
            tuple(weights),
            made,
            n_rows,
            stride,
            hidden=hidden,
            width=tile(hidden, made.dtype).width,
            height=FORWARD_HEIGHT,
            num_warps=sum_products_warps(hidden),
            num_stages=1,
            maxnreg=REGISTERS,
        )
    return True


def _sum_partials(partials: Tensor, grads: Sequence[Tensor], inputs: int, adds: bool) -> None:
    """Writes or adds the sums of the programs' parts [programs, lines, H] to the weights' `grads`,
    of a first layer that reads so many `inputs`.
    """
    from bigtrk.models.edges import triton_partials

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


def shape_of(inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> Shape:
    """Returns the shape of the MLP of edges with these inputs."""
    rows = inputs[0]
    return Shape(rows.shape[1], len(weights) // 2, len(inputs), rows.dtype, has_hopper(rows.device))


@cache
def has_hopper(device: torch.device) -> bool:
    """Says whether a card is of capability 9.0 or later; what is counted or interpreted is so."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)


def _inputs(inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Returns the edges' state and the encoded edges, if they are read."""
    state, *encoded = inputs
    return state, encoded[0] if encoded else None


def _others(weights: Sequence[Tensor]) -> list[Tensor | None]:
    """Returns weight and bias of the second and of the third layer."""
    others: list[Tensor | None] = [weight.detach() for weight in weights[2:]]
    return others + [None] * (2 * MOST_LAYERS - 2 - len(others))
