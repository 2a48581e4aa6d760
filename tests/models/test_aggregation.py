"""Sums over edges, and their gradients."""

import torch

from bigtrk.models.aggregation import gather, segment_sum


def test_sums_and_gradients_in_float64() -> None:
    values = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    nodes = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([3, 0, 0, 3, 1, 1, 1])
    expected = torch.stack([values[index == i].sum(0) for i in range(4)])
    torch.testing.assert_close(segment_sum(values, index, 4), expected)
    assert torch.autograd.gradcheck(lambda v: segment_sum(v, index, 4), values)
    assert torch.autograd.gradcheck(lambda n: gather(n, index), nodes)


def test_bfloat16_is_summed_in_float32() -> None:
    # A sum in bfloat16 stays at 256: 256 + 1 rounds to 256.
    index = torch.zeros(1000, dtype=torch.int64)
    total = segment_sum(torch.ones(1000, 1, dtype=torch.bfloat16), index, 1)
    assert total.dtype == torch.float32
    assert total.item() == 1000
    node = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    gather(node, index).sum().backward()
    assert node.grad is not None
    assert node.grad.item() == 1000


def test_no_edges_and_no_rows() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert torch.equal(segment_sum(torch.zeros(0, 3), none, 2), torch.zeros(2, 3))
    assert segment_sum(torch.zeros(0, 3), none, 0).shape == (0, 3)
