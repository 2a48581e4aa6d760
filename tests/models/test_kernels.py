"""The passes over edges: plain torch against autograd in float64, the compiled ones against it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk.models.kernels import native, plain
from bigtrk.models.kernels.plain import Ends

SHAPES = [(0, 16), (1, 1), (7, 6), (40, 64), (33, 100)]
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


def rows(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def make_ends(shape: tuple[int, int], dtype: torch.dtype) -> Ends:
    """Of five nodes, one of which no edge touches."""
    generator = torch.Generator().manual_seed(9)
    source, destination = torch.randint(4, (2, shape[0]), generator=generator)
    nodes = [rows((5, shape[1]), dtype, seed) for seed in (1, 2)]
    return Ends(nodes[0], nodes[1], source, destination)


def double(ends: Ends | None) -> Ends | None:
    if ends is None:
        return None
    return Ends(ends.of_source.double(), ends.of_destination.double(), *ends[2:])


@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
@pytest.mark.parametrize("with_ends", [False, True])
def test_plain_passes_are_what_autograd_derives(shape: tuple[int, int], with_ends: bool) -> None:
    ends = make_ends(shape, torch.float64) if with_ends else None
    z = rows(shape, torch.float64, 3).requires_grad_()
    grad = rows(shape, torch.float64, 4)
    total = z if ends is None else z + ends.summed()
    expected = layer_norm(total, total.shape[-1:]).relu()
    torch.testing.assert_close(plain.norm_relu(z.detach(), ends), expected)
    (wanted,) = torch.autograd.grad(expected, z, grad)
    found = plain.norm_relu_backward(grad, z.detach(), ends)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


CALLS: dict[str, Callable[[Any, Tensor, Tensor, Ends | None], Tensor]] = {
    "norm_relu": lambda kernels, _, z, ends: kernels.norm_relu(z, ends),
    "norm_relu_backward": lambda kernels, grad, z, ends: kernels.norm_relu_backward(grad, z, ends),
    "relu_backward": lambda kernels, grad, z, ends: kernels.relu_backward(grad, z, ends),
}


@pytest.mark.skipif(native.library() is None, reason="no C compiler")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("with_ends", [False, True])
def test_compiled_passes_equal_plain_ones(
    call: Callable[..., Tensor], dtype: torch.dtype, shape: tuple[int, int], with_ends: bool
) -> None:
    ends = make_ends(shape, torch.float32) if with_ends else None
    grad, z = rows(shape, dtype, 5), rows(shape, dtype, 6)
    found = call(native, grad, z, ends)
    assert found.dtype == dtype
    expected = call(plain, grad.double(), z.double(), double(ends))
    scale = float(expected.abs().max()) if expected.numel() else 1.0
    atol = TOLERANCE[dtype] * max(scale, 1e-3)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=atol)


@pytest.mark.skipif(native.library() is None, reason="no C compiler")
def test_what_is_not_finite_stays_visible() -> None:
    z = rows((3, 16), torch.float32, 7)
    z[1, 4], z[2, 0] = float("nan"), float("inf")
    assert native.norm_relu(z, None)[0].isfinite().all()
    assert native.norm_relu(z, None)[1:].isnan().any(dim=1).all()
    assert native.norm_relu_backward(torch.ones_like(z), z, None)[1:].isnan().any(dim=1).all()


@pytest.mark.skipif(native.library() is None, reason="no C compiler")
@pytest.mark.parametrize("end", [-1, 5, 2**40])
def test_an_edge_out_of_range_is_an_error(end: int) -> None:
    shape = (3, 16)
    z, ends = rows(shape, torch.float32, 8), make_ends(shape, torch.float32)
    ends.destination[1] = end
    for call in CALLS.values():
        with pytest.raises(IndexError, match="an edge ends outside of the 5 nodes"):
            call(native, z, z, ends)


def test_float64_and_accelerators_take_the_plain_passes() -> None:
    assert not native.usable(torch.device("cpu"), torch.float64)
    assert not native.usable(torch.device("meta"), torch.float32)
