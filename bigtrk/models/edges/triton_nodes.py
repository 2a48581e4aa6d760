"""A layer's nodes in Triton: their update, and their shares of the edges' first product.

Pointers: rows of nodes [N, hidden] are float32 or of the edges' type; weights are the parameters. A
product converts what it reads to bfloat16, with `bf16`, and adds up in float32. Nodes are far fewer
than edges, so one form serves all widths and types: rows between two products go through memory, as
in triton_edges.py, which says what a tile is. A row's bits depend on no other row of its launch.
"""

import triton
import triton.language as tl

from bigtrk.models.edges.triton_edges import biased, product, put
from bigtrk.models.edges.triton_kernels import normalised, normalised_backward, positive


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
    """Makes sums of products of all `rows_of`, each [n_rows, hidden] and with weights of its own,
    which come one after another. The first one has a bias, unless that is None; the first `written`
    are written, and the others added to. transposed: they are products for a gradient.
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
                False, hidden, width, depth, bf16,
            )  # fmt: skip
        tl.store(made[one] + place, total.to(made[one].dtype.element_ty), inside)


@triton.jit(do_not_specialize=["n_rows", "n_owned"])
def update(
    rows_of,
    first,
    first_stride,
    first_bias,
    others,
    read,
    grad,
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
    """Makes the owned nodes' next rows, in `read`, by an MLP of `rows_of` side by side. others: in
    turn weight and bias of the linear layers after the first.

    With their `grad` [n_owned, hidden] it makes instead: grads [layers, n_rows, hidden], those of
    each product; read [layers - 1, n_rows, hidden], the rows that products after the first read;
    of_sums, the gradients of the first of `rows_of`. Halo rows, which have no update, get zeros.
    """
    rows = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)[:, None]
    columns = tl.arange(0, width)[None, :]
    exists, owned = rows < n_rows, rows < n_owned
    values = biased(first_bias, height, hidden, width)
    for one in tl.static_range(len(rows_of)):
        values = product(
            values, rows_of[one], rows, owned, first + one * hidden, first_stride, 1,
            False, hidden, width, depth, bf16,
        )  # fmt: skip
    layers: tl.constexpr = len(others) // 2
    kept = (values,)
    for k in tl.static_range(layers):
        normal, scale = normalised(values, columns, hidden)
        later = rows if grad is None else rows + k * n_rows
        put(read, later, exists, positive(normal), hidden, width)
        kept = kept + (normal, scale)  # type: ignore[assignment]  # noqa: RUF005
        values = product(
            biased(others[2 * k + 1], height, hidden, width), read, later, exists, others[2 * k],
            hidden, 1, False, hidden, width, depth, bf16,
        )  # fmt: skip
    if grad is None:
        put(read, rows, exists, positive(values), hidden, width)
    else:
        place, inside = rows * hidden + columns, columns < hidden
        out = tl.load(grad + place, owned & inside, 0.0).to(tl.float32)
        out = tl.where(values > 0, out, 0.0)
        zeros = tl.zeros([height, width], tl.float32)
        for i in tl.static_range(layers):
            later = rows + (layers - i) * n_rows
            put(grads, later, exists, out, hidden, width)
            through = product(
                zeros, grads, later, exists, others[2 * (layers - 1 - i)], 1, hidden,
                False, hidden, width, depth, bf16,
            )  # fmt: skip
            normal, scale = kept[2 * (layers - i) - 1], kept[2 * (layers - i)]
            out = normalised_backward(through, normal, scale, hidden)
        put(grads, rows, exists, out, hidden, width)
        for one in tl.static_range(len(of_sums)):
            out = product(
                zeros, grads, rows, exists, first + one * hidden, 1, first_stride,
                False, hidden, width, depth, bf16,
            )  # fmt: skip
            tl.store(of_sums[one] + place, out.to(grads.dtype.element_ty), exists & inside)


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
    """Writes a part's products of grads[i] and values[i], summed over its rows, to `partials`
    [parts, n_lines, hidden]: `hidden` lines of each, then, of the first `biases`, a line of the sum
    of grads[i]. program_id(0) says which one and which square of it, program_id(1) which part.
    """
    squares: tl.constexpr = (hidden + side - 1) // side
    which, square = tl.program_id(0) // (squares * squares), tl.program_id(0) % (squares * squares)
    outputs = square // squares * side + tl.arange(0, side)
    columns = square % squares * side + tl.arange(0, side)
    part = tl.program_id(1).to(tl.int64)
    begin = part * rows_of_part
    end = tl.minimum(begin + rows_of_part, n_rows)
    partials += part * n_lines * hidden
    kind: tl.constexpr = tl.bfloat16 if bf16 else tl.float32
    for one in tl.static_range(len(grads)):
        if which == one:
            total = tl.zeros([side, side], tl.float32)
            of_bias = tl.zeros([side], tl.float32)
            for start in tl.range(begin, end, depth):
                rows = start + tl.arange(0, depth)[:, None]
                exists = rows < end
                place = rows * hidden + outputs[None, :]
                grad = tl.load(grads[one] + place, exists & (outputs < hidden)[None, :], 0.0)
                place = rows * hidden + columns[None, :]
                value = tl.load(values[one] + place, exists & (columns < hidden)[None, :], 0.0)
                if one < biases:
                    of_bias += tl.sum(grad.to(tl.float32), axis=0)
                a = tl.trans(grad.to(kind))
                total = tl.dot(a, value.to(kind), total, input_precision="ieee")
            place = (one * hidden + outputs)[:, None] * hidden + columns[None, :]
            inside = (outputs < hidden)[:, None] & (columns < hidden)[None, :]
            tl.store(partials + place, total, inside)
            if one < biases:
                place = (len(grads) * hidden + one) * hidden + outputs
                is_first = square % squares == 0
                tl.store(partials + place, of_bias, (outputs < hidden) & is_first)
