"""The sums of weights' gradients over the programs of a backward pass, in Triton."""

import triton
import triton.language as tl

from bigtrk.models.edges.triton_sums import SPAN, before


@triton.jit
def sum_partials(
    partials,
    of_first,
    of_second,
    of_second_bias,
    of_third,
    of_third_bias,
    n_partials,
    n_lines,
    first_stride,
    adds: tl.constexpr,
    inputs: tl.constexpr,
    layers: tl.constexpr,
    hidden: tl.constexpr,
    width: tl.constexpr,
):
    """Sums line program_id(0) of the gradients of weights over partials
    [n_partials, n_lines, hidden]. The lines are the rows of the first layer's columns of each
    input, of the second and of the third layer's weight, then the biases of these two.

    of_first [hidden, ...] has rows of `first_stride` columns, the inputs' in front.
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
    of_inputs = inputs * hidden
    biases = of_inputs + (layers - 1) * hidden
    if line < of_inputs:
        row = line % hidden
        place = row.to(tl.int64) * first_stride + (line // hidden) * hidden + columns
        keep(of_first, place, total, exists, adds)
    if layers > 1:
        if (line >= of_inputs) & (line < of_inputs + hidden):
            keep(of_second, (line - of_inputs) * hidden + columns, total, exists, adds)
        if line == biases:
            keep(of_second_bias, columns, total, exists, adds)
    if layers > 2:
        if (line >= of_inputs + hidden) & (line < biases):
            keep(of_third, (line - of_inputs - hidden) * hidden + columns, total, exists, adds)
        if line == biases + 1:
            keep(of_third_bias, columns, total, exists, adds)


@triton.jit
def keep(sums, place, total, exists, adds: tl.constexpr):
    """Writes sums, or adds to what is there."""
    tl.store(sums + place, total + before(sums, place, exists, adds), exists)
