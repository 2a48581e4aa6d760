"""Loads that the forward pass starts ahead change no bit; a card's own choice is one of them."""

import pytest
import torch

from bigtrk.models.edges import tuning
from tests.models.fused import Case, computed, make

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


# Products of whole rows, of bfloat16 and some widths, have nothing to choose.
@pytest.mark.parametrize(
    ("hidden", "dtype"),
    [(64, torch.float32), (100, torch.float32), (128, torch.float32), (100, torch.bfloat16)],
    ids=str,
)
def test_the_same_bits_with_each_choice(
    monkeypatch: pytest.MonkeyPatch, hidden: int, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(tuning, "_chosen", {})
    inputs, found = make(Case(hidden=hidden, n_edges=5000, layers=3, dtype=dtype)), []
    for stages in tuning.STAGES:
        monkeypatch.setattr(tuning, "STAGES", (stages,))
        found.append(computed(inputs).found)
    one, *others = found
    for other in others:
        assert all(torch.equal(values, other[name]) for name, values in one.items())


def test_a_card_chooses_by_a_large_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "TIMED_BYTES", 2**18)
    monkeypatch.setattr(tuning, "_chosen", {})
    inputs = make(Case(hidden=64, n_edges=5000))
    first, second = computed(inputs).found, computed(inputs).found
    assert len(tuning._chosen) == 1
    assert set(tuning._chosen.values()) <= set(tuning.STAGES)
    assert all(torch.equal(values, second[name]) for name, values in first.items())
