"""Compiles the Triton kernels for GPUs, without one, and says what they become."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bigtrk.models.kernels import tuning
from tests.programs import CHECKOUT

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
    ("backward", ["decoded"]),
]
TUNED = [{"num_stages": stages} for stages in tuning.STAGES]  # of the forward pass
WITH_LAYERS = "sum_partials", "forward", "backward"
# Kernel, hidden, layers, options, type of the rows, compute capability, and other options of its
# launch.
Case = tuple[str, int, int, list[str], str, int, dict[str, int]]


def every_case(hidden: int, capability: int) -> list[Case]:
    """Lists every kernel and option at a width, for GPUs of a compute capability."""
    return [
        (name, hidden, layers, options, rows, capability, launched)
        for (name, options), layers, rows in itertools.product(OPTIONS, (1, 2, 3), ROWS)
        if name in WITH_LAYERS or layers == 2
        for launched in (TUNED if name == "forward" else [{}])
    ]


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
