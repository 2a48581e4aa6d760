"""Launches a layer's whole passes over its edges on GPUs (triton_*.py), laid out by schedule.py and
counted by work.py. Shapes: M edges, N nodes, H = hidden.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bigtrk.models.edges import schedule, triton_passes, work
from bigtrk.models.edges.schedule import Shape, WholeRows, tile
from bigtrk.models.protocol import Ends


class NextLayer(NamedTuple):
    """The next layer: gradient [M, H] and weight [H, H] of its first product, ends' gradients."""

    after: Tensor
    of_state: Tensor
    outer: Ends


def usable(device: torch.device, dtype: torch.dtype, hidden: int, layers: int) -> bool:
    """Whether these passes compute an MLP of `layers` linear layers on rows of `dtype`."""
    fits = hidden <= schedule.WIDEST and layers <= schedule.MOST_LAYERS
    fits = fits and dtype in triton_passes.TYPES
    return fits and (work.counts(device) or triton_passes.usable(device, dtype))


def forward(inputs: Sequence[Tensor], ends: Ends, weights: Sequence[Tensor], made: Tensor) -> None:
    """Makes the next state of edges, [M, H], of `inputs`: their state, and the encoded edges if the
    layer reads them. weights: in turn weights and biases, the first bias in `ends`; where rows are
    whole the weights are of their type. `made` may be the state.
    """
    (n_rows, hidden), shape = made.shape, shape_of(inputs, weights)
    if work.counts(made.device):
        work.note(work.forward(shape, n_rows, len(ends.of_source)))
        return
    from bigtrk.models.edges import triton_edges, triton_whole_rows

    first, _, *others = (weight.detach() for weight in weights)
    size, height = tile(hidden, made.dtype), shape.forward_rows
    read = [*[*inputs, None][:2], ends[:4], first, tuple(others), made, n_rows]
    named = {"hidden": hidden, "width": size.width, "maxnreg": schedule.REGISTERS}
    with torch.cuda.device_of(made):
        if shape.whole:
            of_program = schedule.forward_rows_of_program(n_rows)
            triton_whole_rows.whole_forward[(-(-n_rows // of_program),)](
                *read,
                of_program,
                first.stride(0),
                height=height,
                num_warps=schedule.whole_rows_forward_warps(hidden),
                num_stages=1,
                **named,
            )
            return
        triton_edges.forward[(-(-n_rows // height),)](
            *read,
            first.stride(0),
            height=height,
            depth=size.depth,
            num_warps=size.warps,
            num_stages=schedule.FORWARD_STAGES,
            **named,
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
    edges' state or, where nothing else is `given`, the gradient of the last product. `grads`, in
    the order of the weights, are written, or with `adds` added to; not that of the first bias.
    """
    n_rows, shape = len(gradient), shape_of(inputs, weights)
    # The programs' parts of the weights' gradients and, unless rows are whole, what each program
    # keeps of a block: its normalised rows and their scales.
    programs, kept = shape.programs(n_rows), shape.layers - 1
    partials = gradient.new_empty(programs, shape.lines, shape.hidden, dtype=torch.float32)
    block = schedule.block_rows(shape.hidden, shape.dtype)
    scratch: list[Tensor] = []
    if not shape.whole:
        scratch = [
            gradient.new_empty(programs, kept, block, shape.hidden),
            partials.new_empty(programs, kept, block),
        ]
    # Both kernels' arguments in order.
    of_given = (*given[:2], *given.outer[:2]) if given else None
    first, _, *others = (weight.detach() for weight in weights)
    read = [*[*inputs, None][:2], ends[:4], of_given, made, gradient, first, tuple(others)]
    read += [*scratch, partials]
    of_state = given.of_state.stride(0) if given else shape.hidden
    sizes = [n_rows, shape.rows_of_program(n_rows), shape.lines, first.stride(0), of_state]
    if work.counts(gradient.device):
        work.note(work.backward(shape, n_rows, len(ends.of_source), given=given is not None))
    elif shape.whole:
        with torch.cuda.device_of(gradient):
            _launch_whole_rows(shape, shape.whole, read, sizes)
    else:
        from bigtrk.models.edges import triton_edges

        size = tile(shape.hidden, shape.dtype)
        with torch.cuda.device_of(gradient):
            triton_edges.backward[(programs,)](
                *read,
                *sizes,
                hidden=shape.hidden,
                width=size.width,
                height=size.height,
                depth=size.depth,
                side=size.side,
                block=block,
                num_warps=size.warps,
                num_stages=schedule.BACKWARD_STAGES,
                maxnreg=schedule.REGISTERS,
            )
    of_inputs = grads[0][:, : len(inputs) * shape.hidden].split(shape.hidden, dim=1)
    sum_partials(partials, [*of_inputs, *grads[2::2]], grads[3::2], adds)


def _launch_whole_rows(
    shape: Shape, whole: WholeRows, read: Sequence[Any], sizes: Sequence[int]
) -> None:
    from bigtrk.models.edges import triton_whole_rows

    programs, width = shape.programs(sizes[0]), tile(shape.hidden, shape.dtype).width
    # The weights that each launch sums; the last one writes the gradient.
    launches = [(whole.sums_first, shape.layers > 1, shape.layers > 2)]
    if whole.sums_apart:
        launches = [(False, True, False), (whole.sums_first, False, True)]
    for first, second, third in launches:
        triton_whole_rows.whole_backward[(programs,)](
            *read,
            *sizes,
            hidden=shape.hidden,
            width=width,
            height=whole.height,
            sums_first=first,
            sums_second=second,
            sums_third=third,
            num_warps=whole.warps,
            num_stages=1,
            maxnreg=schedule.REGISTERS,
        )
    if whole.sums_first:
        return
    layout = width, schedule.SUM_HEIGHT, schedule.SUM_ROWS_WARPS
    pairs = zip([read[5]] * shape.inputs, read[: shape.inputs], strict=True)
    sum_products([*pairs], read[-1], sizes[1], 0, shape.dtype, *layout)


def sum_products(
    pairs: Sequence[tuple[Tensor, Tensor]],
    partials: Tensor,
    rows_of_part: int,
    biases: int,
    dtype: torch.dtype,
    side: int,
    height: int,
    warps: int,
) -> None:
    """Launches triton_nodes.of_weights on gradients and values, `height` rows at a time."""
    from bigtrk.models.edges import triton_nodes

    grads, values = zip(*pairs, strict=True)
    parts, n_lines, hidden = partials.shape
    with torch.cuda.device_of(partials):
        triton_nodes.of_weights[(len(grads) * (-(-hidden // side)) ** 2, parts)](
            grads,
            values,
            partials,
            len(grads[0]),
            rows_of_part,
            n_lines,
            biases=biases,
            bf16=dtype == torch.bfloat16,
            hidden=hidden,
            side=side,
            depth=height,
            num_warps=warps,
            num_stages=schedule.SUM_STAGES,
        )


def products(
    rows_of: Sequence[Tensor],
    weights: Sequence[Tensor],
    bias: Tensor | None,
    made: Sequence[Tensor],
    dtype: torch.dtype,
    **options: Any,
) -> None:
    """Makes sums [M, H] of products of all `rows_of` in `dtype`; each has weights of its own."""
    strides = tuple(weight.stride(0) for weight in weights)
    pointers = tuple(rows_of), tuple(weights), strides, bias, tuple(made)
    launch("products", dtype, pointers, (len(made[0]),), len(weights), **options)


def launch(
    name: str,
    dtype: torch.dtype,
    pointers: Sequence[Any],
    sizes: Sequence[int],
    n_products: int,
    **options: Any,
) -> None:
    """Launches a kernel of triton_nodes.py over sizes[0] rows; it computes `n_products`."""
    each = [one for some in pointers for one in (some if isinstance(some, tuple) else [some])]
    tensors = [one for one in each if isinstance(one, Tensor)]
    hidden = tensors[0].shape[1]
    if work.counts(tensors[0].device):
        work.note(work.of_nodes(tensors, sizes[0] * n_products, dtype))
        return
    from bigtrk.models.edges import triton_nodes

    size = schedule.node_tile(hidden, dtype)
    with torch.cuda.device_of(tensors[0]):
        getattr(triton_nodes, name)[(-(-sizes[0] // size.height),)](
            *pointers,
            *sizes,
            bf16=dtype == torch.bfloat16,
            hidden=hidden,
            width=size.width,
            height=size.height,
            depth=size.depth,
            num_warps=size.warps,
            num_stages=schedule.NODE_STAGES,
            maxnreg=schedule.REGISTERS,
            **options,
        )


def sum_partials(
    partials: Tensor, of_weights: Sequence[Tensor], of_biases: Sequence[Tensor], adds: bool
) -> None:
    """Writes or adds the sums of the programs' parts [programs, lines, H]: H lines of each weight's
    gradient [H, H], then those of biases.
    """
    programs, n_lines, hidden = partials.shape
    if work.counts(partials.device):
        work.note(work.sum_partials(partials, adds=adds))
        return
    from bigtrk.models.edges import triton_kernels

    with torch.cuda.device_of(partials):
        triton_kernels.sum_partials[(n_lines,)](
            partials,
            tuple(of_weights),
            tuple(weight.stride(0) for weight in of_weights),
            tuple(of_biases),
            programs,
            n_lines,
            adds=adds,
            hidden=hidden,
            width=tile(hidden, partials.dtype).width,
            num_warps=schedule.SUM_WARPS,
        )


def shape_of(inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> Shape:
    """Returns the shape of the MLP of edges with these inputs."""
    rows = inputs[0]
    return Shape(rows.shape[1], len(weights) // 2, len(inputs), rows.dtype, has_hopper(rows.device))


@cache
def has_hopper(device: torch.device) -> bool:
    """Whether a card is of capability 9.0 or later; true where launches are counted."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)
