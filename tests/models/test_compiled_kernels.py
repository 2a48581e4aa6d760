"""The Triton kernels compile, without atomics and spills, for three generations of GPUs.

The interpreter takes what the compiler refuses, and knows neither registers nor atomics.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs import CHECKOUT

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu
CAPABILITIES = 80, 90, 100
ROWS = "*bf16", "*fp32"
# A kernel, and what it may have.
OPTIONS: list[tuple[str, list[str]]] = [
    ("norm_relu", ["ends"]),
    ("norm_relu", []),
    ("norm_relu_backward", []),
    ("relu_backward", ["ends"]),
    ("relu_backward", []),
    ("sum_at_ends", []),
    ("sum_at_ends", ["adds"]),
    ("sum_at_ends", ["others"]),
    ("sum_at_ends", ["others", "adds"]),
    ("sum_partials", ["encoded"]),
    ("sum_partials", ["encoded", "adds"]),
    ("sum_partials", []),
    ("forward", ["encoded"]),
    ("forward", []),
    ("backward", ["encoded"]),
    ("backward", []),
    ("backward", ["encoded", "decoded"]),
]
WITH_LAYERS = "sum_partials", "forward", "backward"
Case = tuple[str, int, int, list[str], str, int]


def compiled(cases: list[Case], folder: Path) -> list[dict[str, Any]]:
    """Compiles in a process that does not interpret."""
    path = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        "PYTHONPATH": path,
        "TRITON_CACHE_DIR": str(folder),
        "TRITON_INTERPRET": "0",
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_DUMP_PTXAS_LOG": "1",
    }
    command = [sys.executable, "-m", "tests.models.compile_triton", json.dumps(cases)]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


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
    cases: list[Case] = [
        (name, hidden, layers, options, rows, capability)
        for (name, options), layers, rows in itertools.product(OPTIONS, (1, 2, 3), ROWS)
        if name in WITH_LAYERS or layers == 2
    ]
    assert_good(compiled(cases, tmp_path), len(cases))
