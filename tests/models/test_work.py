"""Launches compute and move what the tensors and products of plain passes tell."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bigtrk.models.edges import schedule, work
from bigtrk.models.edges.schedule import Shape
from tests.models.fused import Case, exact, make

CASES = [
    Case(hidden=16, layers=layers, encoded=encoded, dtype=dtype)
    for layers in (1, 2, 3)
    for encoded in (True, False)
    for dtype in (torch.float32, torch.bfloat16)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations_are_those_of_autograd_and_bytes_those_of_the_tensors(case: Case) -> None:
    inputs = make(case)
    shape = Shape(case.hidden, case.layers, 2 if case.encoded else 1, case.dtype)
    with FlopCounterMode(display=False) as counter:
        exact(inputs)
    product = 2 * case.n_edges * case.hidden**2
    forward = work.forward(shape, case.n_edges, 0)
    given, last = (work.backward(shape, case.n_edges, 0, given=one) for one in (True, False))
    # All but the last product is computed again; it is computed with the first where there is one.
    again = product * (shape.inputs + max(0, case.layers - 2))
    assert forward.flops == product * (shape.inputs + case.layers - 1)
    assert forward.flops + given.flops - again == counter.get_total_flops()
    assert given.flops - last.flops == product
    weights = [inputs.weights[0][:, : shape.inputs * case.hidden], *inputs.weights[2:]]
    parameters = sum(weight.numel() * 4 for weight in weights)
    state = inputs.inputs[0].nbytes
    streams = sum(values.nbytes for values in inputs.inputs) + inputs.edge_index.nbytes + state
    assert forward.moved == pytest.approx(streams + parameters + 0.03 * state), "sources again"
    assert given.moved > last.moved + state
    assert last.moved > streams + 2 * parameters


@pytest.mark.parametrize("hidden", [16, 48, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_programs_have_whole_tiles(hidden: int, dtype: torch.dtype) -> None:
    height = Shape(hidden, 2, 2, dtype).tile.height
    for n_rows in (1, height, height * 5000 + 1):
        of_program = schedule.rows_of_program(n_rows, hidden, height)
        assert of_program % height == 0
        assert -(-n_rows // of_program) <= schedule.most_programs(hidden)
