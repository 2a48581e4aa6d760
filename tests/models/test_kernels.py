"""The passes over edges: plain torch against autograd in float64, the compiled ones against it."""

import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk import console
from bigtrk.models.edges import native, plain, triton_passes
from bigtrk.models.edges.states import Passes, passes_for
from bigtrk.models.protocol import Ends

SHAPES = [(0, 16), (1, 1), (7, 6), (40, 64), (33, 100)]
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


def rows(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def make_ends(shape: tuple[int, int], dtype: torch.dtype) -> Ends:
    """Makes the ends of edges among five nodes, one of which no edge touches."""
    generator = torch.Generator().manual_seed(9)
    edge_index = torch.randint(4, (2, shape[0]), generator=generator)
    nodes = [rows((5, shape[1]), dtype, seed) for seed in (1, 2)]
    return Ends.between(nodes[0], nodes[1], edge_index)


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
    total = z if ends is None else plain.total(z, ends)
    expected = layer_norm(total, total.shape[-1:]).relu()
    (wanted,) = torch.autograd.grad(expected, z, grad)
    made, out, rstd = z.detach().clone(), torch.empty_like(z), grad.new_empty(shape[0], 1)
    plain.norm_relu(made, ends, out, rstd)
    torch.testing.assert_close(out, expected.detach())
    plain.norm_relu_backward(grad, made, rstd, out)
    torch.testing.assert_close(out, wanted, rtol=1e-9, atol=1e-9)


def norm_relu(passes: Passes, grad: Tensor, z: Tensor, ends: Ends | None) -> list[Tensor]:
    del grad
    made, out, rstd = z.clone(), torch.empty_like(z), statistics(z)
    passes.norm_relu(made, ends, out, rstd)
    return [made, out, rstd]


def norm_relu_backward(passes: Passes, grad: Tensor, z: Tensor, ends: Ends | None) -> list[Tensor]:
    """Puts the result in place of the gradient. Rows stand for what `norm_relu` left."""
    del ends
    out = grad.clone()
    passes.norm_relu_backward(out, z, statistics(z).copy_(z[:, :1]), out)
    return [out]


def relu_backward(passes: Passes, grad: Tensor, z: Tensor, ends: Ends | None) -> list[Tensor]:
    out = grad.clone()
    passes.relu_backward(out, z, ends, out)
    return [out]


def add_to_nodes(passes: Passes, grad: Tensor, z: Tensor, ends: Ends | None) -> list[Tensor]:
    del grad
    if ends is None:
        return []
    kind = statistics(z).dtype
    of_source, of_destination = (values.to(kind, copy=True) for values in ends[:2])
    passes.add_to_nodes(z, Ends.between(of_source, of_destination, ends.edge_index))
    return [of_source, of_destination]


def statistics(z: Tensor) -> Tensor:
    return z.new_empty(len(z), 1, dtype=torch.promote_types(z.dtype, torch.float32))


Call = Callable[[Passes, Tensor, Tensor, Ends | None], list[Tensor]]
CALLS: list[Call] = [norm_relu, norm_relu_backward, relu_backward, add_to_nodes]


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("with_ends", [False, True])
def test_compiled_passes_equal_plain_ones(
    call: Call, dtype: torch.dtype, shape: tuple[int, int], with_ends: bool
) -> None:
    ends = make_ends(shape, dtype) if with_ends else None
    grad, z = rows(shape, dtype, 5), rows(shape, dtype, 6)
    wanted = call(plain, grad.double(), z.double(), double(ends))
    for values, expected in zip(call(native, grad, z, ends), wanted, strict=True):
        assert values.dtype in (dtype, torch.float32)
        scale = float(expected.abs().max()) if expected.numel() else 1.0
        atol = TOLERANCE[dtype] * max(scale, 1e-3)
        torch.testing.assert_close(values.double(), expected, rtol=0, atol=atol)


@pytest.mark.skipif(native.library() is None, reason="no C compiler")
@pytest.mark.parametrize("passes", [native, plain], ids=["native", "plain"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_what_is_not_finite_stays_visible(passes: Passes, dtype: torch.dtype) -> None:
    z = rows((3, 16), dtype, 7)
    z[1, 4], z[2, 0] = float("nan"), float("inf")
    made, out, rstd = norm_relu(passes, z, z, None)
    assert out[0].isfinite().all()
    assert out[1:].isnan().any(dim=1).all()
    passes.norm_relu_backward(torch.ones_like(z), made, rstd, out)
    assert out[1:].isnan().any(dim=1).all()


def test_each_device_and_type_has_its_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert passes_for(cpu, torch.float64) is passes_for(cuda, torch.float64) is plain
    found = native if native.library() is not None else plain
    assert passes_for(cpu, torch.float32) is passes_for(cpu, torch.bfloat16) is found
    for is_installed, of_gpu in ((False, plain), (True, triton_passes)):
        monkeypatch.setattr(triton_passes, "_installed", lambda one=is_installed: one)
        assert passes_for(cuda, torch.float32) is passes_for(cuda, torch.bfloat16) is of_gpu


LACKING = {
    "nothing": ({}, "include", ""),
    "all of CC": ({"CC": "ccache gcc"}, "include", "finds no 'ccache gcc'; install"),
    "headers": ({"CC": "gcc"}, ".", "finds no Python.h in "),
    "cache": ({"TRITON_CACHE_DIR": "/proc/kept"}, "include", "cannot write to /proc/kept: "),
}


@pytest.mark.parametrize("what", LACKING)
def test_what_triton_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    variables, headers, told = LACKING[what]
    (tmp_path / "include" / "Python.h").mkdir(parents=True)
    monkeypatch.delenv("CC", raising=False)
    for name, value in ({"TRITON_CACHE_DIR": str(tmp_path), "LOCAL_RANK": ""} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(console, "_warned", set())
    monkeypatch.setattr(triton_passes, "find_spec", lambda _: True)
    monkeypatch.setattr(shutil, "which", {"gcc": "/bin/gcc"}.get)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: tmp_path / headers)
    monkeypatch.setattr(triton_passes, "_installed", triton_passes._installed.__wrapped__)
    assert triton_passes.usable(torch.device("cuda"), torch.float32) == (not told)
    said = capsys.readouterr().err
    assert told in said
    assert bool(said) == bool(told)
