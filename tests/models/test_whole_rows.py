"""Products of whole rows: how exact they are, what is launched, and models that use it."""

from math import fsum
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bigtrk.models.edges import fused, native, triton_passes
from tests.models.fused import DEVICE, usable_everywhere
from tests.models.interpreted import tf32, tf32x3
from tests.models.test_fused_layers import results
from tests.models.test_interaction_gnn import make_model

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("interpreted_bf16")]
SIZE = 30, 200  # nodes and edges: of fewer a few that pass a ReLU or not decide how far off it is


@pytest.fixture
def as_on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes all that a GPU has launches for by these."""
    monkeypatch.setattr(native, "usable", lambda *_: False)
    monkeypatch.setattr(triton_passes, "usable", lambda _, dtype: dtype in triton_passes.TYPES)
    monkeypatch.setattr(fused, "usable", usable_everywhere)


def drawn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(torch.bfloat16).to(DEVICE)


@pytest.mark.parametrize("n_terms", [8, 64, 128])
def test_three_products_of_tf32_are_nearly_as_exact_as_float32(n_terms: int) -> None:
    drawn = np.random.default_rng(n_terms)
    a, b = (drawn.normal(size=size).astype(np.float32) for size in ((200, n_terms), (n_terms, 64)))
    exact, one_by_one = a.astype(float) @ b, np.zeros((200, 64), np.float32)
    for k in range(n_terms):
        one_by_one += np.outer(a[:, k], b[k])
    rounded = tf32(a, 0x1000).astype(float) @ tf32(b, 0x1000)
    three, plain, one = (
        float(np.square(made - exact).mean()) ** 0.5 for made in (tf32x3(a, b), one_by_one, rounded)
    )
    assert three <= 2.5 * plain
    assert one > 500 * three


def test_a_variable_of_nvidia_s_selects_plain_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_passes, "usable", lambda *_: True)
    usable = [fused.usable(DEVICE, dtype, 64, 2) for dtype in (torch.float32, torch.bfloat16)]
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert usable == [True, True]
    assert not fused.usable(DEVICE, torch.float32, 64, 2)
    assert fused.usable(DEVICE, torch.bfloat16, 64, 2)


@pytest.mark.usefixtures("as_on_gpu")
@pytest.mark.parametrize(("hidden", "n_rows"), [(16, 1), (48, 130), (80, 64)])
def test_products_are_summed_in_float32(hidden: int, n_rows: int) -> None:
    rows = [drawn(n_rows + i, hidden)[:n_rows] for i in range(9)]
    weights = [drawn(hidden, 3 * hidden)[:, hidden : 2 * hidden] + i for i in range(9)]
    weights = list(torch.cat(weights, dim=1).split(hidden, dim=1))
    made = torch.full_like(rows[0], torch.nan)
    fused.products(rows, weights, None, [made], made.dtype, transposed=True, written=1)
    pairs = zip(rows, weights, strict=True)
    wanted = sum(values.double() @ weight.double() for values, weight in pairs)
    assert isinstance(wanted, Tensor)
    # Rounded once: to 8 binary digits. Terms rounded one by one would be off where they cancel.
    assert ((made.double() - wanted).abs() <= 2**-8 * wanted.abs() + 1e-5).all()


@pytest.mark.usefixtures("as_on_gpu")
@pytest.mark.parametrize(
    "options",
    [{}, {"concatenate": False}, {"mlp_layers": 3, "recompute": "layer"}, {"mlp_layers": 1}],
    ids=str,
)
def test_models_are_at_most_twice_as_far_off_as_in_plain_passes(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    options = {"hidden": 16, **options}
    wanted = results(make_model(**options), torch.float64, *SIZE)
    launched: list[int] = []
    before = fused.backward

    def noting(inputs: Any, *others: Any) -> None:
        launched.append(len(inputs[0]))
        before(inputs, *others)

    monkeypatch.setattr(fused, "backward", noting)
    found = results(make_model(**options, precision="bf16"), torch.float32, *SIZE)
    assert launched == [SIZE[1]] * 3, "each layer's edges"
    monkeypatch.setattr(fused, "usable", lambda *_: False)
    monkeypatch.setattr(triton_passes, "usable", lambda *_: False)
    plain = results(make_model(**options, precision="bf16"), torch.float32, *SIZE)
    off, of_plain = (fsum(made.errors(wanted).values()) for made in (found, plain))
    assert 0 < off <= 2 * of_plain
