"""The Triton passes against the plain ones: on a GPU, else under Triton's interpreter."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bigtrk.models.kernels import native, passes_for, plain, triton_passes
from bigtrk.models.kernels.plain import Ends
from tests.models.test_kernels import CALLS, SHAPES, TOLERANCE, double, make_ends, rows
from tests.programs import CHECKOUT

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def on_device(ends: Ends | None) -> Ends | None:
    return None if ends is None else Ends(*(part.to(DEVICE) for part in ends))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (3, 3000)], ids=str)
@pytest.mark.parametrize("with_ends", [False, True])
def test_equal_the_plain_passes(
    call: Callable[..., Tensor], dtype: torch.dtype, shape: tuple[int, int], with_ends: bool
) -> None:
    ends = make_ends(shape, torch.float32) if with_ends else None
    grad, z = rows(shape, dtype, 5), rows(shape, dtype, 6)
    found = call(triton_passes, grad.to(DEVICE), z.to(DEVICE), on_device(ends))
    assert found.dtype == dtype
    expected = call(plain, grad.double(), z.double(), double(ends))
    scale = float(expected.abs().max()) if expected.numel() else 1.0
    atol = TOLERANCE[dtype] * max(scale, 1e-3)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=0, atol=atol)


def test_the_result_may_take_the_place_of_what_is_read() -> None:
    grad, z = (rows((40, 64), torch.float32, seed).to(DEVICE) for seed in (5, 6))
    ends = on_device(make_ends((40, 64), torch.float32))
    expected = triton_passes.norm_relu_backward(grad, z, ends)
    assert triton_passes.norm_relu_backward(grad, z, ends, out=grad) is grad
    assert torch.equal(grad, expected)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy, which interprets
def test_what_is_not_finite_stays_visible() -> None:
    z = rows((3, 16), torch.float32, 7).to(DEVICE)
    z[1, 4], z[2, 0] = float("nan"), float("inf")
    for found in (
        triton_passes.norm_relu(z, None),
        triton_passes.norm_relu_backward(torch.ones_like(z), z, None),
    ):
        assert found[0].isfinite().all()
        assert found[1:].isnan().all()


@pytest.mark.parametrize("end", [-1, 5, 2**40])
def test_an_end_that_is_no_node_reads_as_nan(end: int) -> None:
    z, ends = rows((3, 16), torch.float32, 8), make_ends((3, 16), torch.float32)
    ends.destination[1] = end
    ones = torch.ones_like(z).to(DEVICE)
    for call in CALLS.values():
        found = call(triton_passes, z.to(DEVICE), ones, on_device(ends))
        assert found[1].isnan().all()
        assert found[::2].isfinite().all()


def test_each_device_and_type_has_its_passes() -> None:
    cuda = torch.device("cuda")
    assert passes_for(cuda, torch.bfloat16) is triton_passes
    assert passes_for(cuda, torch.float64) is plain
    cpu = native if native.library() is not None else plain
    assert passes_for(torch.device("cpu"), torch.float32) is cpu


def test_compile_for_gpus(tmp_path: Path) -> None:
    """The interpreter takes what the compiler refuses."""
    path = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.models.compile_triton"]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 24
