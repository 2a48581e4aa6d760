"""Rows looked up by the compiled sampler."""

import pytest
import torch
from torch import Tensor

from bigtrk.sampling import engines

GENERATOR = torch.Generator().manual_seed(0)
TABLES = {
    "flags": torch.rand(500, generator=GENERATOR) < 0.5,
    "ids": torch.randint(2**60, (500,), generator=GENERATOR),
    "node features": torch.rand(500, 4, generator=GENERATOR),
    "edge features": torch.rand(500, 6, generator=GENERATOR),
    "wide": torch.rand(500, 14, generator=GENERATOR, dtype=torch.float64),
    "not contiguous": torch.rand(6, 500, generator=GENERATOR).T,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("n_rows", [0, 1, 7, 3000])
def test_it_is_an_index(table: Tensor, n_rows: int) -> None:
    row = torch.randint(len(table), (n_rows,), generator=GENERATOR)
    found = engines.take_rows(table, row)
    assert torch.equal(found, table[row])
    assert found.dtype == table.dtype


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "library", lambda: None)
    row = torch.tensor([3, 3, 499])
    assert torch.equal(engines.take_rows(TABLES["ids"], row), TABLES["ids"][row])
