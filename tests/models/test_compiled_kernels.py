"""The Triton kernels compile, without atomics and spills, for three generations of GPUs.

The interpreter takes what the compiler refuses, and knows neither registers nor atomics.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.models.compiled import CAPABILITIES, OPTIONS, ROWS, Case, compiled, every_case

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu


def assert_good(found: list[dict[str, Any]], n: int) -> None:
    assert len(found) == n
    for kernel in found:
        assert kernel["atomics"] == [], kernel
        assert 0 < kernel["registers"] <= 255, kernel
        if kernel["hidden"] <= 128:
            assert kernel["spilled"] == 0, kernel
        # An A100's programs have 163 KiB.
        assert kernel["shared"] <= 163 * 1024, kernel


@pytest.mark.parametrize("rows", ROWS)
def test_kernels_compile_without_atomics_and_spills(tmp_path: Path, rows: str) -> None:
    cases: list[Case] = [("backward", 128, 2, ["encoded"], rows, 90)]
    cases += [(name, 64, 2, options, rows, 80) for name, options in OPTIONS]
    assert_good(compiled(cases, tmp_path), len(cases))


# Slow: it compiles a thousand kernels.
@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("hidden", [32, 64, 100, 128, 256])
def test_every_kernel_and_option(tmp_path: Path, hidden: int, capability: int) -> None:
    cases = every_case(hidden, capability)
    assert_good(compiled(cases, tmp_path), len(cases))
