"""The passes over edges in Triton: one program per tile of rows, arithmetic in float32.

A tile is [height, width]: `height` rows, and `hidden` columns up to the next power of two. Pointers
are those of `Ends`, of rows [n_rows, hidden] and of rstd [n_rows, 1]; those of ends are None
without ends. The caller has checked that the ends are nodes.
"""

import triton
import triton.language as tl

from bigtrk.models.edges import plain

EPS = tl.constexpr(plain.EPS)


@triton.jit
def norm_relu(
    z,
    of_source,
    of_destination,
    source,
    destination,
    out,
    rstd,
    n_rows,
    hidden: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
):
    """Computes plain.norm_relu."""
    rows, columns, inside = tile(n_rows, hidden, height, width)
    at = rows * hidden + columns
    values = tl.load(z + at, inside, 0.0).to(tl.float32)
    if source is not None:
        values += end(of_source, source, rows, columns, n_rows, inside, hidden)
        values += end(of_destination, destination, rows, columns, n_rows, inside, hidden)
    centred = tl.where(inside, values - tl.sum(values, axis=1, keep_dims=True) / hidden, 0.0)
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / hidden
    scale = tl.rsqrt(variance + EPS)
    normal = centred * scale
    tl.store(rstd + rows, scale, rows < n_rows)
    tl.store(z + at, normal.to(z.dtype.element_ty), inside)
    # tl.maximum would make 0 of NaN.
    tl.store(out + at, tl.where(normal <= 0, 0.0, normal).to(out.dtype.element_ty), inside)


@triton.jit
def norm_relu_backward(
    grad, normal, rstd, out, n_rows, hidden: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):
    """Computes plain.norm_relu_backward."""
    rows, columns, inside = tile(n_rows, hidden, height, width)
    at = rows * hidden + columns
    values = tl.load(normal + at, inside, 0.0).to(tl.float32)
    passed = tl.where(values <= 0, 0.0, tl.load(grad + at, inside, 0.0).to(tl.float32))
    along = tl.sum(passed * values, axis=1, keep_dims=True) / hidden
    mean = tl.sum(passed, axis=1, keep_dims=True) / hidden
    scale = tl.load(rstd + rows, rows < n_rows, 0.0)
    result = (passed - mean - values * along) * scale
    tl.store(out + at, result.to(out.dtype.element_ty), inside)


@triton.jit
def relu_backward(
    grad,
    e,
    of_source,
    of_destination,
    source,
    destination,
    out,
    n_rows,
    hidden: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
):
    """Computes plain.relu_backward."""
    rows, columns, inside = tile(n_rows, hidden, height, width)
    at = rows * hidden + columns
    values = tl.load(grad + at, inside, 0.0).to(tl.float32)
    if source is not None:
        values += end(of_source, source, rows, columns, n_rows, inside, hidden)
        values += end(of_destination, destination, rows, columns, n_rows, inside, hidden)
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
def end(of_nodes, index, rows, columns, n_rows, inside, hidden: tl.constexpr):
    """Returns what the nodes at one end add to their edges; zero outside."""
    node = tl.load(index + rows, rows < n_rows, 0).to(tl.int64)
    return tl.load(of_nodes + node * hidden + columns, inside, 0.0).to(tl.float32)
