"""Tiles of rows, in float32, of which the fused passes over edges are made, in Triton.

A tile is [height, width]: `height` rows, and `hidden` columns up to the next power of two. Products
run through `depth` columns of it at a time, which they read from memory: an operand as wide as a
row would not fit a thread's registers. So rows between two products are written first; programs
share none, and a barrier parts those of a program that write from those that read.
"""

import triton
import triton.language as tl

from bigtrk.models.edges import plain

EPS = tl.constexpr(plain.EPS)


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
):
    """Returns total [height, width] + rows [height, 1] of `values` times a weight [hidden, hidden].

    output_stride, input_stride: elements between the weight's outputs and between its inputs; the
    other way round for a gradient. relu: the ReLU of the values is multiplied.
    """
    outputs = tl.arange(0, width)[None, :]
    for start in range(0, hidden, depth):
        inputs = start + tl.arange(0, depth)
        place = rows * hidden + inputs[None, :]
        a = tl.load(values + place, exists & (inputs < hidden)[None, :], 0.0)
        if relu:
            a = positive(a.to(tl.float32)).to(values.dtype.element_ty)
        place = inputs[:, None] * input_stride + outputs * output_stride
        b = tl.load(weight + place, (inputs < hidden)[:, None] & (outputs < hidden), 0.0)
        total = tl.dot(a, b.to(values.dtype.element_ty), total, input_precision="ieee")
    return total


@triton.jit
def both_ends(
    of_source,
    of_destination,
    source,
    destination,
    rows,
    exists,
    hidden: tl.constexpr,
    width: tl.constexpr,
):
    """Returns what the nodes at both ends add to rows [height, 1] of edges; zero outside."""
    columns = tl.arange(0, width)[None, :]
    inside = exists & (columns < hidden)
    node = tl.load(source + rows, exists, 0).to(tl.int64)
    values = tl.load(of_source + node * hidden + columns, inside, 0.0).to(tl.float32)
    node = tl.load(destination + rows, exists, 0).to(tl.int64)
    return values + tl.load(of_destination + node * hidden + columns, inside, 0.0).to(tl.float32)


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
    """Returns the gradient of what was normalised, from that of the ReLU of `normal`."""
    passed = tl.where(normal <= 0, 0.0, grad)
    along = tl.sum(passed * normal, axis=1, keep_dims=True) / hidden
    mean = tl.sum(passed, axis=1, keep_dims=True) / hidden
    return (passed - mean - normal * along) * scale


@triton.jit
def positive(values):
    """Returns the ReLU; tl.maximum would make 0 of NaN."""
    return tl.where(values <= 0, 0.0, values)


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
    of_source,
    of_destination,
    source,
    destination,
    rows,
    exists,
    hidden: tl.constexpr,
    width: tl.constexpr,
    depth: tl.constexpr,
):
    """Returns the first product of rows [height, 1] of edges: of their state, of the encoded edges
    (unless they are None) and of both ends, bias included.
    """
    total = both_ends(of_source, of_destination, source, destination, rows, exists, hidden, width)
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
