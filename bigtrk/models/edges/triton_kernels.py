"""The passes over edges in Triton, one program per tile of rows, and the sums of edges at nodes and
of weights' gradients over programs; arithmetic is in float32.

A tile is [height, width]: `height` rows, and `hidden` columns up to the next power of two. Pointers
are those of `Ends`, of rows [n_rows, hidden] and of rstd [n_rows, 1]; those of ends are None
without ends. The caller has checked that the ends are nodes.

Each number is summed by one program, in an order that the sector and the constants here alone fix;
so neither the number of threads nor a launch's other choices change a bit, and nothing is atomic.
The rows of a step of SPAN are summed as one tile, the steps one after another.
"""

import triton
import triton.language as tl

from bigtrk.models.edges import plain

EPS = tl.constexpr(plain.EPS)
SPAN = tl.constexpr(16)


@triton.jit
def norm_relu(
    z, ends, out, rstd, n_rows, hidden: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):
    """Computes plain.norm_relu."""
    rows, columns, inside = tile(n_rows, hidden, height, width)
    at = rows * hidden + columns
    values = with_ends(z, ends, rows, columns, n_rows, inside, hidden)
    normal, scale = normalised(values, columns, hidden)
    tl.store(rstd + rows, scale, rows < n_rows)
    tl.store(z + at, normal.to(z.dtype.element_ty), inside)
    tl.store(out + at, positive(normal).to(out.dtype.element_ty), inside)


@triton.jit
def norm_relu_backward(
    grad, normal, rstd, out, n_rows, hidden: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):
    """Computes plain.norm_relu_backward."""
    rows, columns, inside = tile(n_rows, hidden, height, width)
    at = rows * hidden + columns
    values = tl.load(normal + at, inside, 0.0).to(tl.float32)
    of_relu = tl.load(grad + at, inside, 0.0).to(tl.float32)
    scale = tl.load(rstd + rows, rows < n_rows, 0.0)
    result = normalised_backward(of_relu, values, scale, hidden)
    tl.store(out + at, result.to(out.dtype.element_ty), inside)


@triton.jit
def relu_backward(
    grad, e, ends, out, n_rows, hidden: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):
    """Computes plain.relu_backward."""
    rows, columns, inside = tile(n_rows, hidden, height, width)
    at = rows * hidden + columns
    values = with_ends(grad, ends, rows, columns, n_rows, inside, hidden)
    passes = tl.load(e + at, inside, 0.0).to(tl.float32) > 0
    tl.store(out + at, tl.where(passes, values, 0.0).to(out.dtype.element_ty), inside)


@triton.jit
def tile(n_rows, hidden: tl.constexpr, height: tl.constexpr, width: tl.constexpr):
    """Returns this program's rows [height, 1] and columns [1, width], and which of them exist."""
    # A large event's edges have more than 2**31 features in all.
    rows = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)[:, None]
    columns = tl.arange(0, width)[None, :]
    return rows, columns, (rows < n_rows) & (columns < hidden)


@triton.jit
def normalised(values, columns, hidden: tl.constexpr):
    """Returns the LayerNorm of rows, and 1 / the standard deviation of each: [height, 1]."""
    values = tl.where(columns < hidden, values, 0.0)
    mean = tl.sum(values, axis=1, keep_dims=True) / hidden
    centred = tl.where(columns < hidden, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / hidden + EPS)
    return centred * scale, scale


@triton.jit
def normalised_backward(grad, normal, scale, hidden: tl.constexpr):
    """Returns the gradient of the rows before normalisation, from that of the ReLU of `normal`."""
    passed = tl.where(normal <= 0, 0.0, grad)
    along = tl.sum(passed * normal, axis=1, keep_dims=True) / hidden
    mean = tl.sum(passed, axis=1, keep_dims=True) / hidden
    return (passed - mean - normal * along) * scale


@triton.jit
def positive(values):
    """Returns the ReLU; tl.maximum would make 0 of NaN."""
    return tl.where(values <= 0, 0.0, values)


@triton.jit
def with_ends(values, ends, rows, columns, n_rows, inside, hidden: tl.constexpr):
    """Returns rows of edges' values with what the nodes at both ends, if any, add to them."""
    total = tl.load(values + rows * hidden + columns, inside, 0.0).to(tl.float32)
    if ends is not None:
        total += end(ends[0], ends[2], rows, columns, rows < n_rows, inside, hidden)
        total += end(ends[1], ends[3], rows, columns, rows < n_rows, inside, hidden)
    return total


@triton.jit
def end(of_nodes, index, rows, columns, exists, inside, hidden: tl.constexpr):
    """Returns what the nodes at one end add to their edges; zero outside."""
    node = tl.load(index + rows, exists, 0).to(tl.int64)
    return tl.load(of_nodes + node * hidden + columns, inside, 0.0).to(tl.float32)


@triton.jit
def sum_at_ends(
    values,
    others,
    by_source,
    by_destination,
    turns,
    sums,
    sums_of_others,
    first,
    n_rows,
    adds: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
):
    """Sums edges `first` to `first` + n_rows at a node and an end: those of turns[program_id(0)],
    2 n for the sources at node n, 2 n + 1 for the destinations. values [n_rows, hidden] are the
    edges', and so are the `others`, if there are any. program_id(1) says which `width` columns are
    summed, those of the values first: programs at work together read narrow rows, of which the
    L2 holds more. adds: the sums are added to those there, float32 [N, hidden].
    """
    turn = tl.load(turns + tl.program_id(0))
    if turn % 2 == 0:
        sum_of_node(
            turn // 2, by_source, values, others, sums, sums_of_others, 0, first, n_rows, adds,
            hidden, width,
        )  # fmt: skip
    else:
        sum_of_node(
            turn // 2, by_destination, values, others, sums, sums_of_others, 1, first, n_rows, adds,
            hidden, width,
        )  # fmt: skip


@triton.jit
def sum_of_node(
    node,
    segments,
    values,
    others,
    sums,
    sums_of_others,
    side: tl.constexpr,
    first,
    n_rows,
    adds: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
):
    """Sums the rows of one end's segment, or those of the others."""
    parts: tl.constexpr = (hidden + width - 1) // width
    columns = tl.program_id(1) % parts * width + tl.arange(0, width)
    if tl.program_id(1) < parts:
        sum_rows(node, segments, values, sums[side], columns, first, n_rows, adds, hidden)
    else:
        if others is not None:
            of_side = sums_of_others[side]
            sum_rows(node, segments, others, of_side, columns, first, n_rows, adds, hidden)


@triton.jit
def sum_rows(
    node, segments, values, sums, columns, first, n_rows, adds: tl.constexpr, hidden: tl.constexpr
):
    """Sums columns of the rows of a segment."""
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
    tl.store(sums + place, total, exists)


@triton.jit
def before(sums, place, exists, adds: tl.constexpr):
    """Returns the sums to which others are added, or zeros."""
    return tl.load(sums + place, exists, 0.0) if adds else tl.zeros(place.shape, tl.float32)


@triton.jit
def sum_partials(
    partials,
    of_weights,
    strides,
    of_biases,
    n_partials,
    n_lines,
    adds: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
):
    """Sums line program_id(0) of the gradients of weights over partials
    [n_partials, n_lines, hidden]. The lines are the rows of each weight [hidden, hidden], which has
    rows of its own stride, then the biases.
    """
    line = tl.program_id(0)
    columns = tl.arange(0, width)
    exists = columns < hidden
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
    """Writes sums, or adds to those there."""
    tl.store(sums + place, total + before(sums, place, exists, adds), exists)
