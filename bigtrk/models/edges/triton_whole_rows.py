"""A layer's whole pass over its edges in Triton, with products of whole rows in tensor cores.

A program takes tiles of edges in turn. Between two products a tile's rows stay in registers and
shared memory, and so do the sums of the weights' gradients until the last tile: on an H200 the
backward pass takes a third to a fifth of the time of triton_edges.py, which is for all other rows
(schedule.whole_rows) and says what the pointers are. The weights come in the type of the rows.

A tile is [height, width]: `height` rows, and `hidden` columns up to the next power of two.
"""

import triton
import triton.language as tl

from bigtrk.models.edges.triton_edges import both_ends
from bigtrk.models.edges.triton_kernels import normalised, normalised_backward, positive


@triton.jit(do_not_specialize=["n_rows"])
def whole_forward(
    state,
    encoded,
    ends,
    first,
    others,
    made,
    n_rows,
    rows_of_program,
    first_stride,
    hidden: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
):
    """Makes the edges' next state, `rows_of_program` edges a program; `made` may be `state`."""
    begin = tl.program_id(0).to(tl.int64) * rows_of_program
    end = tl.minimum(begin + rows_of_program, n_rows)
    columns = tl.arange(0, width)[None, :]
    for start in tl.range(begin, end, height):
        rows = start + tl.arange(0, height)[:, None]
        exists = rows < end
        place, inside = rows * hidden + columns, exists & (columns < hidden)
        state_row = tl.load(state + place, inside, 0.0)
        encoded_row = state_row if encoded is None else tl.load(encoded + place, inside, 0.0)
        values = first_product(
            state_row, encoded_row, encoded is not None, first, first_stride, ends, rows, exists,
            hidden, width,
        )  # fmt: skip
        for k in tl.static_range(len(others) // 2):
            normal, _ = normalised(values, columns, hidden)
            values = next_product(normal, others[2 * k], others[2 * k + 1], hidden, width, height)
        write(made, place, inside, positive(values))


@triton.jit(do_not_specialize=["n_rows"])
def whole_backward(
    state,
    encoded,
    ends,
    given,
    made,
    gradient,
    first,
    others,
    partials,
    n_rows,
    rows_of_program,
    n_lines,
    first_stride,
    of_state_stride,
    hidden: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    sums_first: tl.constexpr,
    sums_second: tl.constexpr,
    sums_third: tl.constexpr,
):
    """Writes the `gradient` [n_rows, hidden] of the first product, which may be `made`, and the
    program's part of the weights' gradients in `partials` [programs, n_lines, hidden], of the
    layers that it sums: for all there may be too few registers. Of three layers one that does not
    sum the third's writes no gradient, since another launch is to follow, which reads `made`.
    """
    layers: tl.constexpr = len(others) // 2 + 1
    program = tl.program_id(0).to(tl.int64)
    begin = program * rows_of_program
    end = tl.minimum(begin + rows_of_program, n_rows)
    partials += program * n_lines * hidden
    inputs: tl.constexpr = 1 if encoded is None else 2
    columns = tl.arange(0, width)[None, :]
    kind: tl.constexpr = gradient.dtype.element_ty
    writes: tl.constexpr = layers < 3 or sums_third
    if sums_first:
        sum_of_state = tl.zeros([width, width], tl.float32)
        sum_of_encoded = tl.zeros([width, width], tl.float32)
    if sums_second:
        sum_of_second = tl.zeros([width, width], tl.float32)
        sum_of_second_bias = tl.zeros([width], tl.float32)
    if sums_third:
        sum_of_third = tl.zeros([width, width], tl.float32)
        sum_of_third_bias = tl.zeros([width], tl.float32)
    for start in tl.range(begin, end, height, disable_licm=True):
        rows = start + tl.arange(0, height)[:, None]
        exists = rows < end
        place, inside = rows * hidden + columns, exists & (columns < hidden)
        grad = tl.load(made + place, inside, 0.0)
        if given is not None:
            after, of_state, of_source, of_destination = given
            outer = of_source, of_destination, ends[2], ends[3]
            total = both_ends(outer, rows, exists, hidden, width)
            weight = read_weight(of_state, of_state_stride, hidden, width)
            total = tl.dot(tl.load(after + place, inside, 0.0), weight, total)
            grad = tl.where(grad.to(tl.float32) > 0, total, 0.0).to(kind)
        state_row = tl.load(state + place, inside, 0.0)
        encoded_row = state_row if encoded is None else tl.load(encoded + place, inside, 0.0)
        if layers > 1:
            values = first_product(
                state_row, encoded_row, encoded is not None, first, first_stride, ends, rows,
                exists, hidden, width,
            )  # fmt: skip
            normal, scale = normalised(values, columns, hidden)
        if layers > 2:
            values = next_product(normal, others[0], others[1], hidden, width, height)
            later, scale_of_later = normalised(values, columns, hidden)
            if sums_third:
                sum_of_third = tl.dot(tl.trans(grad), positive(later).to(kind), sum_of_third)
                sum_of_third_bias += tl.sum(grad.to(tl.float32), axis=0)
            through = tl.dot(grad, read_weight(others[2], hidden, hidden, width))
            grad = normalised_backward(through, later, scale_of_later, hidden).to(kind)
        if layers > 1:
            if sums_second:
                sum_of_second = tl.dot(tl.trans(grad), positive(normal).to(kind), sum_of_second)
                sum_of_second_bias += tl.sum(grad.to(tl.float32), axis=0)
            if writes:
                through = tl.dot(grad, read_weight(others[0], hidden, hidden, width))
                grad = normalised_backward(through, normal, scale, hidden).to(kind)
        if writes:
            write(gradient, place, inside, grad)
        else:
            tl.debug_barrier()  # where nothing is written the compiler would keep the weights
        if sums_first:
            sum_of_state = tl.dot(tl.trans(grad), state_row, sum_of_state)
            if encoded is not None:
                sum_of_encoded = tl.dot(tl.trans(grad), encoded_row, sum_of_encoded)
    size: tl.constexpr = hidden * hidden
    if sums_first:
        keep_sum(partials, sum_of_state, hidden, width)
        if encoded is not None:
            keep_sum(partials + size, sum_of_encoded, hidden, width)
    lines = partials + inputs * size
    biases = lines + (layers - 1) * size
    line = tl.arange(0, width)
    if sums_second:
        keep_sum(lines, sum_of_second, hidden, width)
        tl.store(biases + line, sum_of_second_bias, line < hidden)
    if sums_third:
        keep_sum(lines + size, sum_of_third, hidden, width)
        tl.store(biases + hidden + line, sum_of_third_bias, line < hidden)


@triton.jit
def first_product(
    state_row,
    encoded_row,
    reads_encoded: tl.constexpr,
    first,
    first_stride,
    ends,
    rows,
    exists,
    hidden: tl.constexpr,
    width: tl.constexpr,
):
    """Returns a tile's first product: state, encoded edges if read, both ends with the bias."""
    total = both_ends(ends, rows, exists, hidden, width)
    weight = read_weight(first, first_stride, hidden, width)
    total = tl.dot(state_row, tl.trans(weight), total)
    if reads_encoded:
        weight = read_weight(first + hidden, first_stride, hidden, width)
        total = tl.dot(encoded_row, tl.trans(weight), total)
    return total


@triton.jit
def next_product(
    normal, weight, bias, hidden: tl.constexpr, width: tl.constexpr, height: tl.constexpr
):
    """Returns the product of the ReLU of a tile, bias included."""
    columns = tl.arange(0, width)[None, :]
    total = tl.broadcast_to(tl.load(bias + columns, columns < hidden, 0.0), (height, width))
    read = positive(normal).to(weight.dtype.element_ty)
    return tl.dot(read, tl.trans(read_weight(weight, hidden, hidden, width)), total)


@triton.jit
def read_weight(weight, stride, hidden: tl.constexpr, width: tl.constexpr):
    """Reads a weight [outputs, inputs], with rows of `stride`: a tile [width, width]."""
    outputs, inputs = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
    inside = (outputs < hidden) & (inputs < hidden)
    return tl.load(weight + outputs * stride + inputs, inside, 0.0)


@triton.jit
def write(values, place, inside, tile):
    """Writes a tile over rows that others of the program's threads may still read."""
    tl.debug_barrier()
    tl.store(values + place, tile.to(values.dtype.element_ty), inside)


@triton.jit
def keep_sum(partial, total, hidden: tl.constexpr, width: tl.constexpr):
    """Writes a program's part of a weight's gradient."""
    outputs, inputs = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
    inside = (outputs < hidden) & (inputs < hidden)
    tl.store(partial + outputs * hidden + inputs, total, inside)
