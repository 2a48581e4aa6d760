"""The Triton kernels compile, without atomics and spills, for three generations of GPUs.

The interpreter takes what the compiler refuses, and knows neither registers nor atomics.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.programs import run_python

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu
# Hidden, linear layers, whether the encoded edges are read, type of the rows, compute capability.
Case = tuple[int, int, bool, str, int]


def compiled(cases: list[Case], folder: Path) -> list[dict[str, Any]]:
    """Compiles what these cases launch in a process that does not interpret."""
    done = run_python(
        ["-m", "tests.models.compile_triton", json.dumps(cases)],
        TRITON_CACHE_DIR=str(folder),
        TRITON_INTERPRET="0",
        TRITON_ALWAYS_COMPILE="1",
        TRITON_DUMP_PTXAS_LOG="1",
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_good(found: list[dict[str, Any]]) -> set[str]:
    for kernel in found:
        assert kernel["atomics"] == [], kernel
        assert 0 < kernel["registers"] <= min(255, 65536 // kernel["threads"]), kernel
        multiplies_tf32 = kernel["fp32"] and kernel["multiplies"]
        assert kernel["tf32"] == multiplies_tf32, kernel
        if kernel["hidden"] <= 128:
            assert kernel["spilled"] == 0, kernel
        # An A100's programs have 163 KiB, those of later cards for data centres 227.
        is_wide = kernel["hidden"] > (32 if kernel["fp32"] else 64) and kernel["capability"] >= 90
        assert kernel["shared"] <= (227 if is_wide else 163) * 1024, kernel
        name, is_alone, multiplies = (kernel[k] for k in ("kernel", "rows_alone", "multiplies"))
        is_whole, is_held = name.startswith("whole"), kernel["hidden"] in (64, 128)
        # Triton 3.7.1 makes nothing of some for capability 10. It forgets all products, then.
        assert kernel["products"] or not (is_whole and multiplies), kernel
        is_ahead = is_alone if is_whole else is_held and multiplies
        assert kernel["ahead"] or not is_ahead, f"rows are read ahead of their use: {kernel}"
        # wgmma takes 64 rows at a time; some passes over 128 columns have registers for 32.
        is_low = kernel["hidden"] == 128 and is_whole and (is_alone or name == "whole_backward")
        is_low |= kernel["fp32"]
        if kernel["capability"] == 90 and is_held and not is_low:
            assert "mma.sync" not in kernel["products"], kernel
    return {kernel["kernel"] for kernel in found}


def test_kernels_compile_without_atomics_and_spills(tmp_path: Path) -> None:
    found = assert_good(compiled([(64, 2, True, "bf16", 90)], tmp_path))
    others = {"sum_at_ends", "sum_partials", "products", "update", "of_weights"}
    assert found == {"whole_forward", "whole_backward"} | others


# Slow: it compiles hundreds of kernels.
@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("hidden", [32, 48, 64, 128])
def test_every_kernel_and_option(tmp_path: Path, hidden: int, capability: int) -> None:
    options = itertools.product((1, 2, 3), (True, False), ("bf16", "fp32"))
    found = compiled([(hidden, *one, capability) for one in options], tmp_path)
    assert len(assert_good(found)) >= 5


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("@%p1 red.global.add.f32 [%rd1], %f1; atom.add.f64 %fd1, [%rd1], %fd2;", 2),
        ("{ setp.ne.b32 p, %r1, 0; @p multimem.red.relaxed.sys.add.bf16x2 [%rd1], %r1; }", 1),
        ("redux.sync.add.s32 %r1, %r2, 0xffffffff; // red.global.add.f32", 0),
    ],
)
def test_atomic_instructions_are_found(line: str, found: int) -> None:
    from tests.models.compile_triton import atomics

    assert len(atomics(f"\tmov.u32 %r1, 0x0;\n\t{line}\n\tret;\n")) == found
