"""The fused passes over edges on a card, at widths for which the interpreter takes too long."""

import pytest
import torch

from tests.models.fused import Case, computed, exact, make

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


@pytest.mark.parametrize("layers", [1, 2])
def test_float32_is_exact(layers: int) -> None:
    inputs = make(Case(64, layers, n_edges=500, n_nodes=60))
    errors = computed(inputs).errors(exact(inputs))
    assert max(errors.values()) < 1e-6, errors


@pytest.mark.parametrize("hidden", [64, 80, 128])
def test_bfloat16_is_at_most_twice_as_far_off_as_torch(hidden: int) -> None:
    inputs = make(Case(hidden, n_edges=5000, n_nodes=300, dtype=torch.bfloat16))
    wanted = exact(inputs)
    plain = exact(inputs, torch.bfloat16).errors(wanted)
    found = computed(inputs).errors(wanted)
    assert all(error <= 2 * plain[name] for name, error in found.items()), (found, plain)


def test_a_hub_of_many_edges() -> None:
    inputs = make(Case(64, n_edges=10_000, n_nodes=1))
    errors = computed(inputs).errors(exact(inputs))
    assert max(errors.values()) < 1e-5, errors
