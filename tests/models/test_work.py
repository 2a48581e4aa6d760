"""Launches compute and move what the tensors and products of plain passes tell."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bigtrk.models.edges import fused, schedule, work
from bigtrk.models.protocol import Ends
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
    with FlopCounterMode(display=False) as counter:
        exact(inputs)
    read = [values.to("meta") for values in inputs.inputs]
    weights = [weight.to("meta") for weight in inputs.weights]
    shares, ends = [share.to("meta") for share in inputs.shares], inputs.edge_index.to("meta")
    of_layer, made = Ends.between(shares[0], shares[1], ends), torch.empty_like(read[0])
    after = fused.NextLayer(made, inputs.of_state.to("meta"), of_layer)
    found: dict[str, list[work.Work]] = {"forward": [], "given": [], "last": []}
    for name, noted in found.items():
        with work.counting(noted.append):
            if name == "forward":
                fused.forward(read, of_layer, weights, made)
            else:
                given = after if name == "given" else None
                fused.backward(read, of_layer, weights, made, given, made, weights, False)
    forward, backward, last = (sum(one.flops for one in noted) for noted in found.values())
    product, n_inputs = 2 * case.n_edges * case.hidden**2, len(read)
    # All but the last product is computed again; it is computed with the first where there is one.
    again = product * (n_inputs + case.layers - 2) if case.layers > 1 else 0
    assert forward == product * (n_inputs + case.layers - 1)
    assert forward + backward - again == counter.get_total_flops()
    assert backward - last == product
    streams = [*read, made, *shares, *ends, *weights]
    assert found["forward"][0].moved == sum(values.nbytes for values in streams)
    assert sum(one.moved for one in found["given"]) > sum(one.moved for one in found["last"])


@pytest.mark.parametrize("hidden", [16, 48, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_programs_have_whole_tiles(hidden: int, dtype: torch.dtype) -> None:
    tile = schedule.layer_tile(hidden, 2, dtype, 9)
    assert tile is not None
    for n_rows in (1, tile.height, tile.height * 5000 + 1):
        of_program = schedule.rows_of_program(n_rows, hidden, tile.height)
        assert of_program % tile.height == 0
        assert -(-n_rows // of_program) <= schedule.most_programs(hidden)
