"""Triton kernels that sum edges at nodes and weights' gradients over programs, and shared
functions. Arithmetic is in float32; the caller has checked that the ends of edges are nodes.

Each number is summed by one program, in an order that only the sector and the constants here fix;
so neither the number of threads nor a launch's other choices change a bit, and nothing is atomic.
The rows of a step of SPAN are summed as one tile, the steps one after another.
"""

import triton
import triton.language as tl

from bigtrk.models.edges import plain

EPS = tl.constexpr(plain.EPS)
SPAN = tl.constexpr(16)


@triton.jit
def normalised(values, columns, hidden: tl.constexpr):
    """Returns the LayerNorm of each row, and 1 / its standard deviation: [height, 1]."""
    values = tl.where(columns < hidden, values, 0.0)
    mean = tl.sum(values, axis=1, keep_dims=True) / hidden
    centred = tl.where(columns < hidden, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / hidden + EPS)
    return centred * scale, scale


@triton.jit
def normalised_backward(grad, normal, scale, hidden: tl.constexpr):
    """Returns the gradient before LayerNorm, from `grad` after the ReLU of `normal`."""
    passed = tl.where(normal <= 0, 0.0, grad)
    along = tl.sum(passed * normal, axis=1, keep_dims=True) / hidden
    mean = tl.sum(passed, axis=1, keep_dims=True) / hidden
    return (passed - mean - normal * along) * scale


@triton.jit
def positive(values):
    """Returns the ReLU of values; tl.maximum would turn NaN into 0."""
    return tl.where(values <= 0, 0.0, values)


@triton.jit
def dot(a, b, total=None):
    """Returns total + a @ b. A product of float32 is three of tf32: the tensor cores multiply the
    first 11 binary digits, and the digits that this rounding cut off.
    """
    return tl.dot(a, b, total, input_precision="tf32x3")


@triton.jit
def product(
    total,
    values,
    rows,
    exists,
    weight,
    output_stride,
    input_stride,
    hidden: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
    bf16: tl.constexpr,
):
    """Returns total [height, width] + values[rows] @ weight.T, for weight [hidden, hidden].

    output_stride, input_stride: elements between the weight's outputs and between its inputs;
    exchanged for a gradient. bf16: whether it multiplies in bfloat16, else in float32.
    """
    kind: tl.constexpr = tl.bfloat16 if bf16 else tl.float32
    outputs = tl.arange(0, width)[None, :]
    for start in range(0, hidden, depth):
        inputs = start + tl.arange(0, depth)
        place = rows * hidden + inputs[None, :]
        a = tl.load(values + place, exists & (inputs < hidden)[None, :], 0.0)
        place = inputs[:, None] * input_stride + outputs * output_stride
        b = tl.load(weight + place, (inputs < hidden)[:, None] & (outputs < hidden), 0.0)
        total = dot(a.to(kind), b.to(kind), total)
    return total


@triton.jit
def both_ends(ends, rows, exists, hidden: tl.constexpr, width: tl.constexpr):
    """Returns the sum of the two nodes' rows for edges `rows` [height, 1]; zero outside."""
    columns = tl.arange(0, width)[None, :]
    inside = exists & (columns < hidden)
    of_source = end(ends[0], ends[2], rows, columns, exists, inside, hidden)
    return of_source + end(ends[1], ends[3], rows, columns, exists, inside, hidden)


@triton.jit
def biased(bias, height: tl.constexpr, hidden: tl.constexpr, width: tl.constexpr):
    """Returns a tile whose every row is a bias [hidden], to which products are added."""
    columns = tl.arange(0, width)[None, :]
    row = tl.load(bias + columns, columns < hidden, 0.0).to(tl.float32)
    return tl.broadcast_to(row, (height, width))


@triton.jit
def put(values, rows, exists, tile, hidden: tl.constexpr, width: tl.constexpr):
    """Writes a tile to rows [height, 1], after other threads of the program have read them."""
    columns = tl.arange(0, width)[None, :]
    tl.debug_barrier()
    place = rows * hidden + columns
    tl.store(values + place, tile.to(values.dtype.element_ty), exists & (columns < hidden))
    tl.debug_barrier()


@triton.jit
def end(of_nodes, index, rows, columns, exists, inside, hidden: tl.constexpr):
    """Returns the row of each edge's node at one end; zero outside."""
    node = tl.load(index + rows, exists, 0).to(tl.int64)
    return tl.load(of_nodes + node * hidden + columns, inside, 0.0).to(tl.float32)


@triton.jit
def sum_at_ends(
    values,
    by_source,
    by_destination,
    turns,
    sums,
    first,
    n_rows,
    adds: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
):
    """Sums the edges `first` to `first` + n_rows at one end of a node. turns[program_id(0)] is 2 n
    for edges whose source is node n, 2 n + 1 for those whose destination it is. values [n_rows,
    hidden]: the edges. program_id(1) chooses the `width` columns to sum: programs running together
    read narrow rows, of which the L2 holds more. adds: adds to the sums [N, hidden] there.
    """
    turn = tl.load(turns + tl.program_id(0))
    columns = tl.program_id(1) * width + tl.arange(0, width)
    if turn % 2 == 0:
        sum_rows(turn // 2, by_source, values, sums[0], columns, first, n_rows, adds, hidden)
    else:
        sum_rows(turn // 2, by_destination, values, sums[1], columns, first, n_rows, adds, hidden)


@triton.jit
def sum_rows(
    node, segments, values, sums, columns, first, n_rows, adds: tl.constexpr, hidden: tl.constexpr
):
    """Sums `columns` of one node's edges, which `segments` lists, into `sums`."""
    starts, order = segments
    exists = columns < hidden
    place = node.to(tl.int64) * hidden + columns
    total = before(sums, place, exists, adds)
    start = tl.load(starts + node)
    stop = tl.load(starts + node + 1)
    for at in range(start, stop, SPAN):
        positions = at + tl.arange(0, SPAN)[:, None]
        rows = tl.load(order + positions, positions < stop, 0) - first
        inside = (positions < stop) & (rows >= 0) & (rows < n_rows) & exists[None, :]
        element = rows.to(tl.int64) * hidden + columns[None, :]
        total += tl.sum(tl.load(values + element, inside, 0.0).to(tl.float32), axis=0)
    tl.store(sums + place, total.to(sums.dtype.element_ty), exists)


@triton.jit
def before(sums, place, exists, adds: tl.constexpr):
    """Returns the present sums, if `adds`, else zeros."""
    return tl.load(sums + place, exists, 0.0) if adds else tl.zeros(place.shape, tl.float32)


@triton.jit
def sum_partials(
    partials,
    of_weights,
    strides,
    widths,
    of_biases,
    n_partials,
    n_lines,
    adds: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
):
    """Sums line program_id(0) of partial gradients [n_partials, n_lines, hidden] over n_partials.
    The lines are the rows of each weight, with its own stride and its own width of at most
    `hidden`; then the biases.
    """
    line = tl.program_id(0)
    columns = tl.arange(0, width)
    n_columns = hidden
    for one in tl.static_range(len(of_weights)):
        n_columns = tl.where(line // hidden == one, widths[one], n_columns)
    exists = columns < n_columns
    total = tl.zeros([width], tl.float32)
    for at in range(0, n_partials, SPAN):
        partial = at + tl.arange(0, SPAN)[:, None]
        element = (partial.to(tl.int64) * n_lines + line) * hidden + columns[None, :]
        inside = (partial < n_partials) & exists[None, :]
        total += tl.sum(tl.load(partials + element, inside, 0.0), axis=0)
    for one in tl.static_range(len(of_weights)):
        if line // hidden == one:
            place = (line % hidden).to(tl.int64) * strides[one] + columns
            keep(of_weights[one], place, total, exists, adds)
    for one in tl.static_range(len(of_biases)):
        if line == len(of_weights) * hidden + one:
            keep(of_biases[one], columns, total, exists, adds)


@triton.jit
def keep(sums, place, total, exists, adds: tl.constexpr):
    """Writes `total` to `sums` or, with `adds`, adds it to them."""
    tl.store(sums + place, total + before(sums, place, exists, adds), exists)
