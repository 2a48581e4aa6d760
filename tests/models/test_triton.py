"""The Triton passes against the plain ones: on a GPU, else under Triton's interpreter."""

import pytest
import torch

from bigtrk.models.edges import triton_passes
from bigtrk.models.edges.states import passes_for
from tests.models.test_kernels import (
    CALLS,
    SHAPES,
    TOLERANCE,
    Call,
    assert_equal_plain_ones,
    assert_not_finite_stays_visible,
)

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (3, 3000)], ids=str)
@pytest.mark.parametrize("with_ends", [False, True])
def test_equal_the_plain_passes(
    call: Call, dtype: torch.dtype, shape: tuple[int, int], with_ends: bool
) -> None:
    assert_equal_plain_ones(triton_passes, call, dtype, shape, with_ends, DEVICE)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy, which interprets
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_what_is_not_finite_stays_visible(dtype: torch.dtype) -> None:
    assert_not_finite_stays_visible(triton_passes, dtype, DEVICE)


def test_a_gpu_has_these_passes() -> None:
    assert passes_for(torch.device("cuda"), torch.bfloat16) is triton_passes
