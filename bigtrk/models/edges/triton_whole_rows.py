"""MLPs of edges in Triton, with products of whole rows in tensor cores: a layer's whole pass over
its edges, and the MLPs of encoders and of the edges' decoder.

A program takes tiles of rows in turn. The weights are read before the loop and stay in shared
memory; between two products a tile's rows stay there and in registers, and so do the sums of the
weights' gradients until the last tile.

Linear layers are `hidden` wide; each has its ReLU, before which a LayerNorm comes where `norms`
says so. Pointers: read, the edges' state and the encoded edges if a layer reads them, [n_rows,
hidden], or the rows [n_rows, n_inputs] of an encoder or decoder; linears, in turn the parameters
weight and bias, where a decoder's last pair has `n_outputs` rows; ends, the nodes' shares with a
layer's first bias, sources and destinations, or None without nodes.

A tile is [height, width]: `height` rows, and `hidden` columns up to the next power of two.
"""

# ruff: noqa: RUF005  # Triton unpacks no tuples
# mypy: disable-error-code="assignment"

import triton
import triton.language as tl

from bigtrk.models.edges import schedule
from bigtrk.models.edges.triton_kernels import (
    biased,
    both_ends,
    dot,
    normalised,
    normalised_backward,
    positive,
)

width_of = triton.constexpr_function(schedule.width_of)


@triton.jit(do_not_specialize=["n_rows"])
def whole_forward(
    read,
    ends,
    linears,
    made,
    n_rows,
    rows_of_program,
    first_stride,
    norms: tl.constexpr,
    n_inputs: tl.constexpr,
    n_outputs: tl.constexpr,
    bf16: tl.constexpr,
    hidden: tl.constexpr,
    height: tl.constexpr,
):
    """Writes the last layer's rows or, if there are outputs, [n_rows, n_outputs] to `made`, which
    may be the tensor that is read. A program computes `rows_of_program` rows.
    """
    kind: tl.constexpr = tl.bfloat16 if bf16 else tl.float32
    begin = tl.program_id(0).to(tl.int64) * rows_of_program
    end = tl.minimum(begin + rows_of_program, n_rows)
    columns = tl.arange(0, width_of(hidden))[None, :]
    layers: tl.constexpr = len(norms)
    tiles = read_weights(linears, first_stride, layers, len(read), kind, n_inputs, hidden)
    for start in tl.range(begin, end, height, disable_licm=True):
        rows = start + tl.arange(0, height)[:, None]
        exists = rows < end
        of_rows = read_rows(read, rows, exists, kind, n_inputs)
        normals, _ = hidden_rows(
            of_rows, tiles, linears, ends, norms, layers, rows, exists, hidden, height
        )
        total = positive(normals[layers - 1])
        if n_outputs == 0:
            inside = exists & (columns < hidden)
            write(made, rows * hidden + columns, inside, total, ends is not None)
        for output in tl.static_range(n_outputs):
            weight, bias = linears[2 * layers] + output * hidden, linears[2 * layers + 1] + output
            values = tl.sum(total * tl.load(weight + columns, columns < hidden, 0.0), 1, True)
            tl.store(made + rows * n_outputs + output, values + tl.load(bias), exists)


@triton.jit(do_not_specialize=["n_rows"])
def whole_backward(
    read,
    ends,
    linears,
    given,
    made,
    gradient,
    partials,
    n_rows,
    rows_of_program,
    first_stride,
    n_lines,
    norms: tl.constexpr,
    summed: tl.constexpr,
    lowest: tl.constexpr,
    n_inputs: tl.constexpr,
    n_outputs: tl.constexpr,
    bf16: tl.constexpr,
    hidden: tl.constexpr,
    height: tl.constexpr,
):
    """Writes the program's part of the gradients of the `summed` weights to `partials` [programs,
    n_lines, hidden]; for all weights there may be too few registers. If `lowest` is layer 0, it
    also writes `gradient` (may be `made`): the gradient of a layer's first product, or of a
    decoder's input rows before their ReLU.

    given: the gradient of the next layer's first product, that product's weight with its stride,
    and both ends' gradients. made: a layer's rows; or, without `given`, the gradient of its last
    product; for an encoder or a decoder, the gradient of its result.
    """
    kind: tl.constexpr = tl.bfloat16 if bf16 else tl.float32
    width: tl.constexpr = width_of(hidden)
    layers: tl.constexpr = len(norms)
    again: tl.constexpr = layers if ends is None else layers - 1  # layers computed again
    first_bias: tl.constexpr = 0 if ends is None else 1
    inputs: tl.constexpr = len(read)
    size: tl.constexpr = hidden * hidden
    begin = tl.program_id(0).to(tl.int64) * rows_of_program
    end = tl.minimum(begin + rows_of_program, n_rows)
    if ends is None:  # there are too few registers for places of 64 bits
        read = (read[0] + begin * n_inputs,)
        made += begin * (n_outputs if n_outputs > 0 else hidden)
        if gradient is not None:
            gradient += begin * hidden
        begin, end = 0, (end - begin).to(tl.int32)
    partials += tl.program_id(0).to(tl.int64) * n_lines * hidden
    biases = partials + (inputs + layers - 1) * size - first_bias * hidden
    columns = tl.arange(0, width)[None, :]
    tiles = read_weights(linears, first_stride, layers, inputs, kind, n_inputs, hidden)
    if given is not None:
        of_state = read_weight(given[1], given[2], kind, hidden, hidden)
    # The sums of the layers' weights, then of the first one's columns for the encoded edges.
    totals = ()
    for k in tl.static_range(layers + inputs - 1):
        if summed[k % layers]:
            totals = totals + (tl.zeros([width, width if k else width_of(n_inputs)], tl.float32),)
        else:
            totals = totals + (0,)
    for start in tl.range(begin, end, height, disable_licm=True):
        rows = start + tl.arange(0, height)[:, None]
        exists, adds = rows < end, start > begin
        place, inside = rows * hidden + columns, exists & (columns < hidden)
        if ends is not None:
            grad = tl.load(made + place, inside, 0.0)
        if given is not None:
            outer = given[3], given[4], ends[2], ends[3]
            total = both_ends(outer, rows, exists, hidden, width)
            total = dot(tl.load(given[0] + place, inside, 0.0), of_state, total)
            grad = tl.where(grad.to(tl.float32) > 0, total, 0.0)
        of_rows = read_rows(read, rows, exists, kind, n_inputs)
        normals, scales = hidden_rows(
            of_rows, tiles, linears, ends, norms, again, rows, exists, hidden, height
        )
        if n_outputs > 0:
            grad = tl.zeros([height, width], tl.float32)
        elif ends is None:
            grad = tl.load(made + place, inside, 0.0)
        for output in tl.static_range(n_outputs):
            weight = linears[2 * layers] + output * hidden + columns
            part = tl.load(made + rows * n_outputs + output, exists, 0.0)
            grad += part * tl.load(weight, columns < hidden, 0.0)
            if summed[layers - 1]:
                total = tl.sum(part * positive(normals[layers - 1]), axis=0)
                add_line(biases + (layers + output) * hidden, total, adds, hidden)
        later = ()
        for k in tl.static_range(layers - 1, lowest - 1, -1):
            if k < again:
                if norms[k]:
                    grad = normalised_backward(grad, normals[k], scales[k], hidden)
                else:
                    grad = tl.where(normals[k] <= 0, 0.0, grad.to(tl.float32))
            rounded = grad.to(kind)
            if k == 0 and ends is not None:
                write(gradient, place, inside, rounded, True)
            if summed[k]:
                if k >= first_bias:
                    total = tl.sum(grad.to(tl.float32), axis=0)
                    add_line(biases + k * hidden, total, adds, hidden)
                factor = positive(normals[k - 1]).to(of_rows[0].dtype) if k else of_rows[0]
                later = (dot(tl.trans(rounded), factor, totals[k]),) + later
                if k == 0 and inputs == 2:
                    later = later + (dot(tl.trans(rounded), of_rows[1], totals[layers]),)
            else:
                later = (0,) + later
                if k == 0 and inputs == 2:
                    later = later + (0,)
            if k > lowest or (k == 0 and n_outputs > 0):
                grad = dot(rounded, tiles[k])
        for _ in tl.static_range(lowest):
            later = (0,) + later
        if lowest > 0 and inputs == 2:
            later = later + (0,)
        totals = later
        if n_outputs > 0 and lowest == 0:
            grad = tl.where(of_rows[0].to(tl.float32) > 0, grad, 0.0)
            write(gradient, place, inside, grad, False)
    for k in tl.static_range(layers + inputs - 1):
        if summed[k % layers]:
            outputs = tl.arange(0, width)[:, None]
            at = tl.arange(0, width_of(hidden if k else n_inputs))[None, :]
            lines = partials + (0 if k == 0 else 1 if k == layers else inputs + k - 1) * size
            inside = (outputs < hidden) & (at < (hidden if k else n_inputs))
            tl.store(lines + outputs * hidden + at, totals[k], inside)


@triton.jit
def hidden_rows(
    of_rows,
    tiles,
    linears,
    ends,
    norms: tl.constexpr,
    layers: tl.constexpr,
    rows,
    exists,
    hidden: tl.constexpr,
    height: tl.constexpr,
):
    """Returns, for each of the first `layers`, its rows before the ReLU, and the LayerNorm scales
    (0 without LayerNorm).
    """
    width: tl.constexpr = width_of(hidden)
    columns = tl.arange(0, width)[None, :]
    normals, scales = (), ()
    for k in tl.static_range(layers):
        if k == 0 and ends is not None:
            total = both_ends(ends, rows, exists, hidden, width)
        else:
            total = biased(linears[2 * k + 1], height, hidden, width)
        factor = positive(normals[k - 1]).to(of_rows[0].dtype) if k else of_rows[0]
        total = dot(factor, tl.trans(tiles[k]), total)
        if k == 0 and len(of_rows) == 2:
            total = dot(of_rows[1], tl.trans(tiles[len(tiles) - 1]), total)
        if norms[k]:
            total, scale = normalised(total, columns, hidden)
            scales = scales + (scale,)
        else:
            scales = scales + (0,)
        normals = normals + (total,)
    return normals, scales


@triton.jit
def read_rows(read, rows, exists, kind: tl.constexpr, n_columns: tl.constexpr):
    """Reads a tile of each input [n_rows, n_columns], converted for products."""
    columns = tl.arange(0, width_of(n_columns))[None, :]
    tiles = ()
    for one in tl.static_range(len(read)):
        row = tl.load(read[one] + rows * n_columns + columns, exists & (columns < n_columns), 0.0)
        tiles = tiles + (row.to(kind),)
    return tiles


@triton.jit
def read_weights(
    linears,
    first_stride,
    layers: tl.constexpr,
    inputs: tl.constexpr,
    kind: tl.constexpr,
    n_inputs: tl.constexpr,
    hidden: tl.constexpr,
):
    """Reads the weight of each layer, then the first weight's columns for a second input."""
    tiles = (read_weight(linears[0], first_stride, kind, n_inputs, hidden),)
    for k in tl.static_range(1, layers):
        tiles = tiles + (read_weight(linears[2 * k], hidden, kind, hidden, hidden),)
    if inputs == 2:
        second = read_weight(linears[0] + hidden, first_stride, kind, hidden, hidden)
        tiles = tiles + (second,)
    return tiles


@triton.jit
def read_weight(
    weight,
    stride,
    kind: tl.constexpr,
    n_inputs: tl.constexpr,
    hidden: tl.constexpr,
):
    """Reads a weight [hidden, n_inputs], whose rows are `stride` apart, for products."""
    outputs = tl.arange(0, width_of(hidden))[:, None]
    inputs = tl.arange(0, width_of(n_inputs))[None, :]
    inside = (outputs < hidden) & (inputs < n_inputs)
    return tl.load(weight + outputs * stride + inputs, inside, 0.0).to(kind)


@triton.jit
def write(values, place, inside, tile, waits: tl.constexpr):
    """Writes a tile; `waits`: only after the program's other threads have read these rows."""
    if waits:
        tl.debug_barrier()
    tl.store(values + place, tile.to(values.dtype.element_ty), inside)


@triton.jit
def add_line(line, values, adds, hidden: tl.constexpr):
    """Writes sums [hidden] to memory or, with `adds`, adds them to the program's own earlier sums
    there: it has too few registers to keep many of them.
    """
    columns = tl.arange(0, width_of(hidden))
    before = tl.load(line + columns, (columns < hidden) & adds, 0.0)
    tl.store(line + columns, before + values, columns < hidden)
