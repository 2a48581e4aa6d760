"""Launches compute and move what the tensors and products of plain passes tell."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bigtrk.models.edges import schedule
from bigtrk.models.edges.work import Ends, Reads, Shape
from tests.models.fused import Case, exact, make

CASES = [
    Case(hidden=16, layers=layers, encoded=encoded, dtype=dtype)
    for layers in (1, 2, 3)
    for encoded in (True, False)
    for dtype in (torch.float32, torch.bfloat16)
]


NO_ENDS = Ends(Reads(0, 0), Reads(0, 0))


def shape_of(case: Case) -> Shape:
    return Shape(case.hidden, case.layers, 2 if case.encoded else 1, case.dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations_are_those_of_autograd_and_of_what_is_computed_again(case: Case) -> None:
    ends = Ends(Reads(0, 0), Reads(0, 0))
    shape, inputs = shape_of(case), make(case)
    with FlopCounterMode(display=False) as counter:
        exact(inputs)
    product = 2 * case.n_edges * case.hidden**2
    forward = shape.forward(case.n_edges, ends).flops
    backward = shape.backward(case.n_edges, ends, given=True).flops
    # All but the last product is computed again; it is computed with the first where there is one.
    again = product * (shape.inputs + max(0, case.layers - 2))
    assert forward == product * (shape.inputs + case.layers - 1)
    assert forward + backward - again == counter.get_total_flops()
    without = shape.backward(case.n_edges, ends, given=False).flops
    assert backward - without == product


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_least_bytes_are_those_of_the_tensors(case: Case) -> None:
    """Ends are int64, weights float32, and each row of a node that an edge has is read once."""
    inputs, shape = make(case), shape_of(case)
    distinct = [len(end.unique()) for end in inputs.edge_index]
    ends = Ends(*(Reads(n, 3 * n) for n in distinct))
    rows = case.hidden * case.dtype.itemsize
    tables = sum(distinct) * rows
    weights = [inputs.weights[0][:, : shape.inputs * case.hidden], *inputs.weights[2:]]
    parameters = sum(weight.numel() * 4 for weight in weights)
    streams = sum(values.nbytes for values in inputs.inputs) + inputs.edge_index.nbytes
    state = inputs.inputs[0].nbytes
    forward = shape.forward(case.n_edges, ends)
    assert forward.least == streams + state + tables + parameters
    assert forward.moved == forward.least + 2 * tables
    backward = shape.backward(case.n_edges, ends, given=True)
    read = streams + state + inputs.after.nbytes + parameters + case.hidden * rows
    assert backward.least == read + state + parameters + 2 * tables
    nodes = len(inputs.shares[0])
    edges = Reads(case.n_edges, 2 * case.n_edges)
    sums = shape.sum_at_ends(nodes, edges, streams=2, adds=False)
    # Where segments begin, their edges, the order of the turns.
    segments = 2 * 4 * (nodes + 1 + case.n_edges) + 4 * 2 * nodes
    assert sums.least == segments + 2 * state + 4 * nodes * case.hidden * 4
    assert sums.moved - sums.least == 2 * state + segments, "each stream has its turn"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_programs_write_and_read_their_parts_of_the_gradients(dtype: torch.dtype) -> None:
    shape, n_edges = Shape(64, 2, 2, dtype), 3_000_000
    programs = shape.programs(n_edges)
    assert 0.9 * 1024 < programs <= 1024
    parts = programs * (3 * 64 + 1) * 64 * 4
    assert shape.sum_partials(n_edges, adds=False).moved == parts + (3 * 64 + 1) * 64 * 4
    backward = shape.backward(n_edges, NO_ENDS, given=True)
    # Of whole rows nothing is kept in memory.
    kept = programs * 128 * (64 * 4 + 4) if dtype == torch.float32 else 0
    assert backward.moved - backward.least == parts + kept - (3 * 64 + 1) * 64 * 4


def test_what_whole_rows_have_no_registers_for_is_read_again() -> None:
    n_edges, stream = 3_000_000, 3_000_000 * 128 * 2

    def moved(layers: int) -> tuple[float, float]:
        shape = Shape(128, layers, 2, torch.bfloat16)
        parts = (shape.programs(n_edges) - 1) * shape.weights
        work = shape.backward(n_edges, NO_ENDS, given=True)
        return work.moved - parts, work.least

    whole, least = moved(layers=2)
    assert whole - least == 2 * 2 * stream, "both inputs, each with the gradient"
    apart, least = moved(layers=3)
    once = least - Shape(128, 3, 2, torch.bfloat16).weights
    assert apart - least == 2 * 2 * stream + once - stream, "all again, but no gradient"


@pytest.mark.parametrize(("hidden", "stays"), [(64, True), (128, True), (129, False), (256, False)])
def test_what_an_l2_does_not_hold_is_moved_each_time(hidden: int, stays: bool) -> None:
    """Each weight's gradient reads both of its factors once for each 32 rows of its squares."""
    n_edges, row = 3_000_000, hidden * 4
    backward = Shape(hidden, 2, 2, torch.float32).backward(n_edges, NO_ENDS, given=True)
    factors = n_edges * 3 * 2 * -(-hidden // 32) * row
    assert (backward.again > factors) is stays
    assert (backward.moved - backward.least > factors) is not stays


@pytest.mark.parametrize("hidden", [16, 32, 64, 100, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_blocks_are_whole_tiles(hidden: int, dtype: torch.dtype) -> None:
    size, block = schedule.tile(hidden, dtype), schedule.block_rows(hidden, dtype)
    assert block % size.height == block % size.depth == 0
    for n_rows in (0, 1, block, block * 5000 + 1):
        of_program = schedule.rows_of_program(n_rows, block, hidden, dtype)
        assert of_program % block == 0
        assert -(-n_rows // of_program) <= schedule.most_programs(hidden, dtype)
