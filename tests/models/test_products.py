"""The products of rows in C, for several processors, against float64."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from bigtrk.models.edges import native, plain
from bigtrk.models.edges.states import Passes

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C compiler")
# Rows, what they are multiplied with, and outputs.
SHAPES = [
    (0, [4], 3),
    (1, [1], 1),
    (7, [6], 64),
    (50, [5, 3], 17),
    (131, [64, 64], 64),
    (600, [20, 33, 7], 100),
    (5000, [64], 1),
    (1300, [100], 130),
]
# Of the largest entry. bfloat16 rounds the result.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 4e-3}


class Numbers(NamedTuple):
    """rows [M, K] and weights [K, H] of each factor, of which every other one is transposed in
    memory; bias [H]; grad [M, H]; total [K, H + 2] of the first factor.
    """

    rows: list[Tensor]
    weights: list[Tensor]
    bias: Tensor
    grad: Tensor
    total: Tensor


def draw(shape: tuple[int, list[int], int], dtype: torch.dtype) -> Numbers:
    n_rows, widths, n_columns = shape
    generator = torch.Generator().manual_seed(3)

    def rows(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(dtype)

    weights = [
        rows(n_columns, width + 4).t()[2:-2] if i % 2 == 0 else rows(width, n_columns)
        for i, width in enumerate(widths)
    ]
    return Numbers(
        [rows(n_rows, width) for width in widths],
        weights,
        rows(n_columns),
        rows(n_rows, n_columns),
        rows(widths[0], n_columns + 2).float(),
    )


def wide(numbers: Numbers) -> Numbers:
    rows, weights = ([values.double() for values in some] for some in numbers[:2])
    return Numbers(rows, weights, *(values.double() for values in numbers[2:]))


def results(passes: Passes, numbers: Numbers) -> dict[str, Tensor]:
    rows, weights, bias, grad, total = numbers
    found = {name: torch.empty_like(grad) for name in ("product", "with bias", "one product")}
    passes.multiply(rows, weights, None, found["product"])
    passes.multiply(rows, weights, bias, found["with bias"])
    passes.multiply(rows[:1], weights[:1], None, found["one product"])
    found["weights"], found["sum"] = total.clone(), total[0, 2:].clone()
    passes.add_product(rows[0], grad, found["weights"][:, 2:])
    passes.add_sum(grad, found["sum"])
    return found


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_equal_float64_with_the_same_bits_on_more_threads(
    shape: tuple[int, list[int], int], dtype: torch.dtype
) -> None:
    numbers, before = draw(shape, dtype), torch.get_num_threads()
    found, exact = results(native, numbers), results(plain, wide(numbers))
    assert torch.equal(found["weights"][:, :2], numbers.total[:, :2]), "they are of another part"
    for name, values in found.items():
        scale = float(exact[name].abs().max()) if values.numel() else 1.0
        atol = TOLERANCE[torch.float32 if name in ("weights", "sum") else dtype]
        torch.testing.assert_close(
            values.double(), exact[name], rtol=0, atol=atol * scale, msg=name
        )
    try:
        for n_threads in (1, 2, 7):
            torch.set_num_threads(n_threads)
            again = results(native, numbers)
            assert [name for name in found if not torch.equal(found[name], again[name])] == []
    finally:
        torch.set_num_threads(before)


def test_what_is_not_finite_stays_visible() -> None:
    numbers = draw((9, [7], 5), torch.bfloat16)
    numbers.rows[0][4, 6] = float("nan")
    found = results(native, numbers)
    assert found["product"].isnan().any(dim=1).tolist() == [row == 4 for row in range(9)]
    assert found["weights"][:, 2:].isnan().any(dim=1).tolist() == [k == 6 for k in range(7)]
