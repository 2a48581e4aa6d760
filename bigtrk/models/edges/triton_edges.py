"""A layer's whole pass over its edges in Triton, forward and backward.

A layer has 1 to 3 linear layers; LayerNorm and ReLU come between them, ReLU comes after the last
one. Pointers: state, encoded (or None), made, after [n_rows, hidden] are rows of edges in one type;
the shares and outer gradients of nodes [N, hidden] too; source, destination [n_rows] the ends;
weights and biases are the parameters, float32. The first weight's rows have `first_stride` columns:
those of the state, then those of the encoded edges, then those of nodes.

Loops over rows keep what does not change within them (disable_licm): addresses that were computed
before would stay in registers, of which there are too few. All numbers of edges have one compiled
form (do_not_specialize), so that what is timed is what is launched.

A tile is [height, width]: `height` rows, and `hidden` columns up to the next power of two. Products
run through `depth` columns of it at a time, which they read from memory: an operand as wide as a
row would not fit a thread's registers. So rows between two products are written first; programs
share none, and a barrier parts those of a program that write from those that read.
"""

import triton
import triton.language as tl

from bigtrk.models.edges.triton_kernels import end, normalised, normalised_backward, positive


@triton.jit
def product(
    total,
    values,
    rows,
    exists,
    weight,
    output_stride,
    input_stride,
    relu: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
    bf16: tl.constexpr = None,
):
    """Returns total [height, width] + rows [height, 1] of `values` times a weight [hidden, hidden].

    output_stride, input_stride: elements between the weight's outputs and between its inputs; the
    other way round for a gradient. relu: the ReLU of the values is multiplied. bf16: whether they
    are multiplied in bfloat16; None: in the type of the values.
    """
    of_values: tl.constexpr = values.dtype.element_ty
    kind: tl.constexpr = of_values if bf16 is None else tl.bfloat16 if bf16 else tl.float32
    outputs = tl.arange(0, width)[None, :]
    for start in range(0, hidden, depth):
        inputs = start + tl.arange(0, depth)
        place = rows * hidden + inputs[None, :]
        a = tl.load(values + place, exists & (inputs < hidden)[None, :], 0.0)
        if relu:
            a = positive(a.to(tl.float32))
        place = inputs[:, None] * input_stride + outputs * output_stride
        b = tl.load(weight + place, (inputs < hidden)[:, None] & (outputs < hidden), 0.0)
        total = tl.dot(a.to(kind), b.to(kind), total, input_precision="ieee")
    return total


@triton.jit
def both_ends(ends, rows, exists, hidden: tl.constexpr, width: tl.constexpr):
    """Returns what the nodes at both ends add to rows [height, 1] of edges; zero outside."""
    columns = tl.arange(0, width)[None, :]
    inside = exists & (columns < hidden)
    of_source = end(ends[0], ends[2], rows, columns, exists, inside, hidden)
    return of_source + end(ends[1], ends[3], rows, columns, exists, inside, hidden)


@triton.jit
def biased(bias, height: tl.constexpr, hidden: tl.constexpr, width: tl.constexpr):
    """Returns a tile whose rows are a bias [hidden], as rows of the products are summed to it."""
    columns = tl.arange(0, width)[None, :]
    row = tl.load(bias + columns, columns < hidden, 0.0).to(tl.float32)
    return tl.broadcast_to(row, (height, width))


@triton.jit
def first_product(
    state,
    encoded,
    weight,
    weight_stride,
    ends,
    rows,
    exists,
    hidden: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
):
    """Returns the first product of edges [height, 1]: state, encoded, both ends with the bias."""
    total = both_ends(ends, rows, exists, hidden, width)
    total = product(
        total, state, rows, exists, weight, weight_stride, 1, False, hidden, width, depth
    )
    if encoded is not None:
        total = product(
            total, encoded, rows, exists, weight + hidden, weight_stride, 1,
            False, hidden, width, depth,
        )  # fmt: skip
    return total


@triton.jit
def put(values, rows, exists, tile, hidden: tl.constexpr, width: tl.constexpr):
    """Writes a tile over rows [height, 1] that others of its threads may still read."""
    columns = tl.arange(0, width)[None, :]
    tl.debug_barrier()
    place = rows * hidden + columns
    tl.store(values + place, tile.to(values.dtype.element_ty), exists & (columns < hidden))
    tl.debug_barrier()


@triton.jit(do_not_specialize=["n_rows"])
def forward(
    state,
    encoded,
    ends,
    first,
    others,
    made,
    n_rows,
    first_stride,
    hidden: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    depth: tl.constexpr,
):
    """Makes the edges' next state; `made` may be `state`. Rows between products go through it.
    others: in turn weight and bias of the linear layers after the first.
    """
    # A large event's edges have more than 2**31 features in all.
    rows = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)[:, None]
    columns = tl.arange(0, width)[None, :]
    exists = rows < n_rows
    values = first_product(
        state, encoded, first, first_stride, ends, rows, exists, hidden, width, depth
    )
    for k in tl.static_range(len(others) // 2):
        normal, _ = normalised(values, columns, hidden)
        put(made, rows, exists, positive(normal), hidden, width)
        values = biased(others[2 * k + 1], height, hidden, width)
        values = product(
            values, made, rows, exists, others[2 * k], hidden, 1, False, hidden, width, depth
        )
    put(made, rows, exists, positive(values), hidden, width)


@triton.jit(do_not_specialize=["n_rows"])
def backward(
    state,
    encoded,
    ends,
    given,
    made,
    gradient,
    first,
    others,
    normals,
    scales,
    partials,
    n_rows,
    rows_of_program,
    n_lines,
    first_stride,
    of_state_stride,
    hidden: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    depth: tl.constexpr,
    side: tl.constexpr,
    block: tl.constexpr,
):
    """Writes the `gradient` [n_rows, hidden] of the first product, which may be `made`, and the
    program's part of the weights' gradients in `partials` [programs, n_lines, hidden].

    given: the gradient of the next layer's first product (None: `made` is that of the last product
    of this layer); the weight [hidden, hidden] of that for this layer's edges, with rows of
    `of_state_stride`; what sources and destinations add to the gradient. Programs take
    `rows_of_program` edges each, `block` by block; normals [programs, layers - 1, block, hidden]
    and scales [programs, layers - 1, block] hold what a block keeps of each layer but the last.
    """
    layers: tl.constexpr = len(others) // 2 + 1
    program = tl.program_id(0).to(tl.int64)
    begin = program * rows_of_program
    end = tl.minimum(begin + rows_of_program, n_rows)
    if layers > 1:
        normals += program * ((layers - 1) * block * hidden)
        scales += program * ((layers - 1) * block)
    partials += program * n_lines * hidden
    inputs: tl.constexpr = 1 if encoded is None else 2
    biases: tl.constexpr = (inputs + layers - 1) * hidden
    for start in tl.range(begin, end, block, disable_licm=True):
        stop = tl.minimum(start + block, end)
        adds = start > begin
        for row in tl.range(start, stop, height, disable_licm=True):
            rows = row + tl.arange(0, height)[:, None]
            exists = rows < stop
            output_gradient(
                given, of_state_stride, ends, made, gradient, rows, exists, hidden, width, depth
            )
            values = first_product(
                state, encoded, first, first_stride, ends, rows, exists, hidden, width, depth
            )
            if layers > 1:
                keep_normal(normals, scales, values, rows - start, exists, hidden, width)
            if layers > 2:
                values = product(
                    biased(others[1], height, hidden, width), normals, rows - start, exists,
                    others[0], hidden, 1, True, hidden, width, depth,
                )  # fmt: skip
                keep_normal(
                    normals + block * hidden, scales + block, values, rows - start, exists,
                    hidden, width,
                )  # fmt: skip
        if layers > 2:
            through_layer(
                gradient, normals + block * hidden, scales + block, others[2],
                partials + (inputs + 1) * hidden * hidden, partials + (biases + 1) * hidden,
                start, stop, adds, hidden, width, height, depth, side,
            )  # fmt: skip
        if layers > 1:
            through_layer(
                gradient, normals, scales, others[0], partials + inputs * hidden * hidden,
                partials + biases * hidden, start, stop, adds, hidden, width, height, depth, side,
            )  # fmt: skip
        of_weight(gradient, state, start, partials, start, stop, adds, False, hidden, depth, side)
        if encoded is not None:
            of_weight(
                gradient, encoded, start, partials + hidden * hidden, start, stop, adds,
                False, hidden, depth, side,
            )  # fmt: skip


@triton.jit
def output_gradient(
    given,
    of_state_stride,
    ends,
    made,
    gradient,
    rows,
    exists,
    hidden: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
):
    """Writes the gradient of the last product, whose ReLU was `made` unless it is that already."""
    columns = tl.arange(0, width)[None, :]
    inside = exists & (columns < hidden)
    grad = tl.load(made + rows * hidden + columns, inside, 0.0).to(tl.float32)
    if given is not None:
        after, of_state, of_source, of_destination = given
        passes = grad > 0
        outer = of_source, of_destination, ends[2], ends[3]
        grad = both_ends(outer, rows, exists, hidden, width)
        grad = product(
            grad, after, rows, exists, of_state, 1, of_state_stride, False, hidden, width, depth
        )
        grad = tl.where(passes, grad, 0.0)
    put(gradient, rows, exists, grad, hidden, width)


@triton.jit
def keep_normal(normals, scales, values, rows, exists, hidden: tl.constexpr, width: tl.constexpr):
    """Keeps rows [height, 1] of a block, normalised, and their scales."""
    normal, scale = normalised(values, tl.arange(0, width)[None, :], hidden)
    tl.store(scales + rows, scale, exists)
    put(normals, rows, exists, normal, hidden, width)


@triton.jit
def through_layer(
    grads,
    normals,
    scales,
    weight,
    partial,
    partial_of_bias,
    start,
    stop,
    adds,
    hidden: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    depth: tl.constexpr,
    side: tl.constexpr,
):
    """Propagates a block's gradients through a layer; adds those of its weight and bias."""
    of_weight(grads, normals, 0, partial, start, stop, adds, True, hidden, depth, side)
    columns = tl.arange(0, width)
    exists = columns < hidden
    of_bias = tl.load(partial_of_bias + columns, exists & adds, 0.0)
    for row in tl.range(start, stop, height, disable_licm=True):
        rows = row + tl.arange(0, height)[:, None]
        inside = (rows < stop) & exists[None, :]
        place = rows * hidden + columns[None, :]
        of_bias += tl.sum(tl.load(grads + place, inside, 0.0).to(tl.float32), axis=0)
        grad = product(
            tl.zeros([height, width], tl.float32), grads, rows, rows < stop, weight, 1, hidden,
            False, hidden, width, depth,
        )  # fmt: skip
        kept = (rows - start) * hidden + columns[None, :]
        normal = tl.load(normals + kept, inside, 0.0).to(tl.float32)
        scale = tl.load(scales + (rows - start), rows < stop, 0.0)
        grad = normalised_backward(grad, normal, scale, hidden)
        put(grads, rows, rows < stop, grad, hidden, width)
    tl.store(partial_of_bias + columns, of_bias, exists)


@triton.jit
def of_weight(
    grads,
    values,
    values_start,
    partial,
    start,
    stop,
    adds,
    relu: tl.constexpr,
    hidden: tl.constexpr,
    depth: tl.constexpr,
    side: tl.constexpr,
):
    """Adds the product of a block's gradients and values to a weight's partial gradient
    [hidden, hidden], `side` by `side` of it at a time. Row `start` of the gradients belongs to row
    `values_start` of the values: a block has rows of its own in what it keeps.
    """
    for output in tl.range(0, hidden, side, disable_licm=True):
        outputs = output + tl.arange(0, side)[:, None]
        for column in tl.range(0, hidden, side, disable_licm=True):
            columns = column + tl.arange(0, side)[None, :]
            inside = (outputs < hidden) & (columns < hidden)
            place = outputs * hidden + columns
            total = tl.load(partial + place, inside & adds, 0.0)
            for row in tl.range(start, stop, depth, disable_licm=True):
                rows = row + tl.arange(0, depth)
                exists = rows < stop
                place_of_grad = rows[None, :] * hidden + outputs
                a = tl.load(grads + place_of_grad, exists[None, :] & (outputs < hidden), 0.0)
                kept = (rows - start + values_start)[:, None] * hidden + columns
                b = tl.load(values + kept, exists[:, None] & (columns < hidden), 0.0)
                if relu:
                    b = positive(b.to(tl.float32)).to(values.dtype.element_ty)
                total = tl.dot(a, b, total, input_precision="ieee")
            tl.store(partial + place, total, inside)
