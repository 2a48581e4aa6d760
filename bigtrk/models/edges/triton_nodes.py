"""Products and MLPs of nodes, which are far fewer than edges, in Triton.

Pointers: rows [n_rows, hidden] are float32 or of the edges' type; weights are the parameters. A
product converts its operands to bfloat16, with `bf16`, and sums in float32. A tile is [height,
width]: `height` rows, and `hidden` columns up to the next power of two; products run through
`depth` columns at a time, which they read from memory: an operand as wide as a row would not fit a
thread's registers. So rows between two products are written first. A row's bits depend on no other
row of its launch; all numbers of rows have one compiled form (do_not_specialize).
"""

# ruff: noqa: RUF005  # Triton unpacks no tuples
# mypy: disable-error-code="assignment"

import triton
import triton.language as tl

from bigtrk.models.edges.triton_kernels import (
    biased,
    dot,
    normalised,
    normalised_backward,
    positive,
    product,
    put,
)


@triton.jit(do_not_specialize=["n_rows"])
def products(
    rows_of,
    weights,
    strides,
    bias,
    made,
    n_rows,
    transposed: tl.constexpr,
    written: tl.constexpr,
    bf16: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    depth: tl.constexpr,
):
    """Computes, for each `made`, the sum of all `rows_of` [n_rows, hidden] times weights of its
    own, which follow each other. The first sum also has `bias`, unless None. The first `written`
    sums are written, the others added to. transposed: the products propagate a gradient.
    """
    rows = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)[:, None]
    columns = tl.arange(0, width)[None, :]
    exists = rows < n_rows
    place, inside = rows * hidden + columns, exists & (columns < hidden)
    terms: tl.constexpr = len(rows_of)
    for one in tl.static_range(len(made)):
        if one >= written:
            total = tl.load(made[one] + place, inside, 0.0).to(tl.float32)
        elif bias is not None and one == 0:
            total = biased(bias, height, hidden, width)
        else:
            total = tl.zeros([height, width], tl.float32)
        for term in tl.static_range(terms):
            total = product(
                total, rows_of[term], rows, exists, weights[one * terms + term],
                1 if transposed else strides[one * terms + term],
                strides[one * terms + term] if transposed else 1,
                hidden, width, depth, bf16,
            )  # fmt: skip
        tl.store(made[one] + place, total.to(made[one].dtype.element_ty), inside)


@triton.jit(do_not_specialize=["n_rows", "n_owned"])
def update(
    rows_of,
    first,
    first_stride,
    first_bias,
    others,
    made,
    copy,
    given,
    read,
    grads,
    of_sums,
    n_rows,
    n_owned,
    bf16: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
    height: tl.constexpr,
    depth: tl.constexpr,
):
    """Computes an MLP of the concatenated `rows_of` for owned nodes, and writes it to `made`, which
    may be one of these. others: weight and bias in turn of the linear layers after the first. copy:
    gets the same rows in another type.

    With `grads` it instead writes the gradient of each product to `grads`, the inputs of products
    after the first to `read`, and the gradients of the first of `rows_of` to of_sums. given: the
    gradient of the owned nodes' result (halo rows get zeros).
    """
    rows = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)[:, None]
    columns = tl.arange(0, width)[None, :]
    exists, owned = rows < n_rows, rows < n_owned
    layers: tl.constexpr = len(others) // 2
    values = biased(first_bias, height, hidden, width)
    for one in tl.static_range(len(rows_of)):
        values = product(
            values, rows_of[one], rows, owned, first + one * hidden, first_stride, 1,
            hidden, width, depth, bf16,
        )  # fmt: skip
    kept = ()
    for k in tl.static_range(layers):
        normal, scale = normalised(values, columns, hidden)
        between = made if grads is None else read[k]
        put(between, rows, exists, positive(normal), hidden, width)
        kept = kept + (normal, scale)
        values = product(
            biased(others[2 * k + 1], height, hidden, width), between, rows, exists,
            others[2 * k], hidden, 1, hidden, width, depth, bf16,
        )  # fmt: skip
    if grads is None:
        put(made, rows, exists, positive(values), hidden, width)
        if copy is not None:
            put(copy, rows, exists, positive(values), hidden, width)
    else:
        place, inside = rows * hidden + columns, columns < hidden
        out = tl.load(given + place, owned & inside, 0.0).to(tl.float32)
        out = tl.where(values > 0, out, 0.0)
        zeros = tl.zeros([height, width], tl.float32)
        for k in tl.static_range(layers, 0, -1):
            put(grads[k], rows, exists, out, hidden, width)
            through = product(
                zeros, grads[k], rows, exists, others[2 * k - 2], 1, hidden,
                hidden, width, depth, bf16,
            )  # fmt: skip
            out = normalised_backward(through, kept[2 * k - 2], kept[2 * k - 1], hidden)
        put(grads[0], rows, exists, out, hidden, width)
        for one in tl.static_range(len(of_sums)):
            out = product(
                zeros, grads[0], rows, exists, first + one * hidden, 1, first_stride,
                hidden, width, depth, bf16,
            )  # fmt: skip
            tl.store(of_sums[one] + place, out.to(of_sums[one].dtype.element_ty), exists & inside)


@triton.jit(do_not_specialize=["n_rows", "rows_of_part", "n_lines"])
def of_weights(
    grads,
    values,
    partials,
    n_rows,
    rows_of_part,
    n_lines,
    biases: tl.constexpr,
    bf16: tl.constexpr,
    hidden: tl.constexpr,
    side: tl.constexpr,
    depth: tl.constexpr,
):
    """Writes grads[i].T @ values[i] over the rows of one part to `partials` [parts, n_lines,
    hidden]: `hidden` lines for each i; then, for the first `biases` of them, a line with the sum of
    grads[i]. program_id(0) chooses i and a square of its product, program_id(1) the part.
    """
    kind: tl.constexpr = tl.bfloat16 if bf16 else tl.float32
    squares: tl.constexpr = (hidden + side - 1) // side
    which, square = tl.program_id(0) // (squares * squares), tl.program_id(0) % (squares * squares)
    outputs = square // squares * side + tl.arange(0, side)
    columns = square % squares * side + tl.arange(0, side)
    part = tl.program_id(1).to(tl.int64)
    begin = part * rows_of_part
    end = tl.minimum(begin + rows_of_part, n_rows)
    partials += part * n_lines * hidden
    for one in tl.static_range(len(grads)):
        if which == one:
            total = tl.zeros([side, side], tl.float32)
            of_bias = tl.zeros([side], tl.float32)
            for start in tl.range(begin, end, depth):
                rows = start + tl.arange(0, depth)[:, None]
                exists = rows < end
                place, inside = rows * hidden + outputs[None, :], (outputs < hidden)[None, :]
                grad = tl.load(grads[one] + place, exists & inside, 0.0)
                place, inside = rows * hidden + columns[None, :], (columns < hidden)[None, :]
                value = tl.load(values[one] + place, exists & inside, 0.0)
                if one < biases:
                    of_bias += tl.sum(grad.to(tl.float32), axis=0)
                total = dot(tl.trans(grad.to(kind)), value.to(kind), total)
            place = (one * hidden + outputs)[:, None] * hidden + columns[None, :]
            inside = (outputs < hidden)[:, None] & (columns < hidden)[None, :]
            tl.store(partials + place, total, inside)
            if one < biases:
                place = (len(grads) * hidden + one) * hidden + outputs
                is_first = square % squares == 0
                tl.store(partials + place, of_bias, (outputs < hidden) & is_first)
