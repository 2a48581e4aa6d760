"""Launches a layer's whole passes over its edges on GPUs (triton_*.py), laid out by schedule.py and
counted by work.py. Shapes: M edges, N nodes, H = hidden.
"""

import os
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bigtrk.models.edges import schedule, triton_passes, work
from bigtrk.models.edges.schedule import Shape
from bigtrk.models.protocol import Ends


class NextLayer(NamedTuple):
    """The next layer: gradient [M, H] and weight [H, H] of its first product, ends' gradients."""

    after: Tensor
    of_state: Tensor
    outer: Ends

    @property
    def tensors(self) -> tuple[Any, ...]:
        """Lists its tensors, as kernels read them."""
        return self.after, self.of_state, self.of_state.stride(0), *self.outer[:2]


class Term(NamedTuple):
    """Rows [N, H] whose product is a weight's gradient; their sum may be a bias's."""

    grads: Tensor
    values: Tensor
    of_weight: Tensor
    of_bias: Tensor | None = None


def usable(device: torch.device, dtype: torch.dtype, hidden: int, layers: int) -> bool:
    """Whether these passes compute an MLP of `layers` linear layers on rows of `dtype`. Those of
    float32 multiply in tf32, which NVIDIA's variable forbids.
    """
    if dtype == torch.float32 and os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    on_gpu = work.counts(device) or triton_passes.usable(device, dtype)
    return on_gpu and schedule.layer_tile(hidden, layers, dtype, capability(device)) is not None


def forward(inputs: Sequence[Tensor], ends: Ends, weights: Sequence[Tensor], made: Tensor) -> None:
    """Makes the next state of edges, [M, H]. inputs: their state and, if the layer reads them, the
    encoded edges. weights: weights and biases in turn; the first bias is in `ends`. `made` may be
    the tensor of the state.
    """
    (n_rows, hidden), shape = made.shape, shape_of(inputs, weights)
    if work.counts(made.device):
        work.note(work.forward(shape, n_rows, len(ends.of_source)))
        return
    is_wide = 64 < hidden < 128 or (hidden > 32 and made.dtype == torch.float32)
    of_program, height = schedule.forward_rows_of_program(n_rows), schedule.rows_at_once(made.dtype)
    layout, norms = (of_program, height, 8 if is_wide else 4, 1), [True] * (shape.layers - 1)
    weights = tuple(weight.detach() for weight in weights)
    tensors, named = (ends[:4], weights, made), {"norms": (*norms, False), "dtype": shape.dtype}
    launch_whole("whole_forward", inputs, tensors, weights[0], layout, **named)


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
    """Writes the `gradient` [M, H] of the edges' first product, maybe in the place of `made`: the
    edges' new state, or, if `given` is None, the gradient of the last product. Writes `grads`, in
    the order of the weights, or with `adds` adds to them, except that of the first bias.
    """
    n_rows, shape = len(gradient), shape_of(inputs, weights)
    hidden, whole = shape.hidden, shape.tile
    of_program = schedule.rows_of_program(n_rows, hidden, whole.height)
    size = -(-n_rows // of_program), shape.lines, hidden
    partials = gradient.new_empty(size, dtype=torch.float32)
    if work.counts(gradient.device):
        work.note(work.backward(shape, n_rows, len(ends.of_source), given=given is not None))
    else:
        linears = tuple(weight.detach() for weight in weights)
        tensors = ends[:4], given and given.tensors, made, gradient, linears, partials
        layout, norms = (of_program, *whole[:2], 1), (*[True] * (shape.layers - 1), False)
        read: Any = inputs, tensors, linears[0], layout, [shape.lines]
        for summed, lowest in whole.launches(shape.layers):
            named = {"norms": norms, "summed": summed, "lowest": lowest, "dtype": shape.dtype}
            launch_whole("whole_backward", *read, **named)
        if not whole.sums_first:
            squares = schedule.width_of(hidden), schedule.rows_at_once(shape.dtype)
            pairs = [(gradient, values) for values in inputs]
            options = 0, shape.dtype, *squares, schedule.SUM_ROWS_WARPS
            sum_products(pairs, partials, of_program, *options)
    of_inputs = grads[0][:, : len(inputs) * hidden].split(hidden, dim=1)
    sum_partials(partials, [*of_inputs, *grads[2::2]], grads[3::2], adds)


def launch_whole(
    name: str,
    read: Sequence[Tensor],
    tensors: Sequence[Any],
    first: Tensor,
    layout: tuple[int, int, int, int],
    n_lines: Sequence[int] = (),
    n_outputs: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    **named: Any,
) -> None:
    """Launches a kernel of triton_whole_rows.py, which reads rows [M, H or less]. layout: the rows
    of a program, the rows of a tile, the number of warps, and the loads ahead.
    """
    from bigtrk.models.edges import triton_whole_rows

    (n_rows, n_inputs), hidden = read[0].shape, len(first)
    of_program, height, warps, stages = layout
    with torch.cuda.device_of(first):
        getattr(triton_whole_rows, name)[(-(-n_rows // of_program),)](
            tuple(read),
            *tensors,
            n_rows,
            of_program,
            first.stride(0),
            *n_lines,
            n_inputs=n_inputs,
            n_outputs=n_outputs,
            bf16=dtype == torch.bfloat16,
            hidden=hidden,
            height=height,
            num_warps=warps,
            num_stages=stages,
            maxnreg=schedule.REGISTERS,
            **named,
        )


def weights_backward(terms: Sequence[Term], dtype: torch.dtype) -> None:
    """Writes the gradients of weights and biases; sums of `grads` of a bias are in float32."""
    terms = sorted(terms, key=lambda term: term.of_bias is None)
    pairs = [(term.grads, term.values) for term in terms]
    biases = [term.of_bias for term in terms if term.of_bias is not None]
    n_rows, hidden = terms[0].grads.shape
    size = schedule.node_tile(hidden, dtype)
    rows_of_part = size.height * max(1, -(-n_rows // (size.height * schedule.NODE_PARTS)))
    parts, lines = -(-n_rows // rows_of_part), len(terms) * hidden + len(biases)
    partials = terms[0].grads.new_empty(parts, lines, hidden, dtype=torch.float32)
    if work.counts(partials.device):
        tensors = [tensor for pair in pairs for tensor in pair]
        work.note(work.of_nodes([*tensors, partials], n_rows * len(terms), dtype))
    else:
        layout = size.side, size.height, schedule.NODE_SUM_WARPS
        sum_products(pairs, partials, rows_of_part, len(biases), dtype, *layout)
    sum_partials(partials, [term.of_weight for term in terms], biases, adds=False)


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
    size = schedule.node_tile(made[0].shape[1], dtype)
    launch("products", dtype, pointers, (len(made[0]),), len(weights), size, **options)


def launch_mlp(
    dtype: torch.dtype,
    rows_of: Sequence[Tensor],
    weights: Sequence[Tensor],
    made: Tensor | None,
    sizes: tuple[int, int],
    given: Tensor | None = None,
    read: Sequence[Tensor] = (),
    grads: Sequence[Tensor] | None = None,
    of_sums: Sequence[Tensor] = (),
    copy: Tensor | None = None,
) -> None:
    """Launches triton_nodes.update on as many rows, and owned ones, as `sizes` says."""
    first, bias, *others = weights
    layers = len(others) // 2
    n_products = len(rows_of) + layers
    if grads is not None:
        n_products += len(of_sums) + layers
    written = tuple(read), None if grads is None else tuple(grads), tuple(of_sums)
    linears = first, first.stride(0), bias, tuple(others)
    size = schedule.node_tile(len(first), dtype)
    if layers > 1 and size.width > 64:  # at 32, an A100 spills 4 bytes
        size = size._replace(depth=16)
    pointers = tuple(rows_of), *linears, made, copy, given, *written
    launch("update", dtype, pointers, sizes, n_products, size)


def launch(
    name: str,
    dtype: torch.dtype,
    pointers: Sequence[Any],
    sizes: Sequence[int],
    n_products: int,
    size: schedule.NodeTile,
    **options: Any,
) -> None:
    """Launches a kernel of triton_nodes.py over sizes[0] rows; it computes `n_products`."""
    each = [one for some in pointers for one in (some if isinstance(some, tuple) else [some])]
    tensors = [one for one in each if isinstance(one, Tensor)]
    if work.counts(tensors[0].device):
        work.note(work.of_nodes(tensors, sizes[0] * n_products, dtype))
        return
    from bigtrk.models.edges import triton_nodes

    with torch.cuda.device_of(tensors[0]):
        getattr(triton_nodes, name)[(-(-sizes[0] // size.height),)](
            *pointers,
            *sizes,
            bf16=dtype == torch.bfloat16,
            hidden=tensors[0].shape[1],
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
    """Writes, or with `adds` adds, the sums of the programs' parts [programs, lines, H] of
    gradients: H lines of each weight's [H, H or less], then one of each bias.
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
            tuple(weight.shape[1] for weight in of_weights),
            tuple(of_biases),
            programs,
            n_lines,
            adds=adds,
            hidden=hidden,
            width=schedule.width_of(hidden),
            num_warps=schedule.SUM_WARPS,
        )


def shape_of(inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> Shape:
    """Returns the shape of the MLP of edges with these inputs."""
    rows = inputs[0]
    size = rows.shape[1], len(weights) // 2, len(inputs)
    return Shape(*size, rows.dtype, capability(rows.device))


@cache
def capability(device: torch.device) -> int:
    """Returns the major number of a GPU's compute capability, but 7 if the GPU gives a block less
    shared memory than an A100 does. Without a GPU, launches are only counted, as for a 9.
    """
    if device.type != "cuda":
        return 9
    card = torch.cuda.get_device_properties(device)
    shared = getattr(card, "shared_memory_per_block_optin", 0)
    return int(card.major) if shared >= schedule.SHARED_BYTES else 7
