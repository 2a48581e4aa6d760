"""Compiles the Triton kernels for GPUs, without one, and says what they become."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from bigtrk.models.edges import schedule, tuning
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
# Of rows of bfloat16 that programs take as a whole.
WHOLE_ROWS: list[tuple[str, list[str]]] = [
    ("whole_forward", ["encoded"]),
    ("whole_forward", []),
    ("whole_backward", ["encoded"]),
    ("whole_backward", []),
    ("whole_backward", ["encoded", "decoded"]),
    ("whole_backward", ["decoded"]),
    ("whole_backward", ["encoded", "second"]),
    ("sum_inputs", ["encoded"]),
    ("sum_inputs", []),
    ("sum_products", []),
]
TUNED = [{"num_stages": stages} for stages in tuning.STAGES]  # of the forward pass
WITH_LAYERS = "sum_partials", "forward", "backward", "whole_forward", "whole_backward"
# Kernel, hidden, layers, options, type of the rows, compute capability, and other options of its
# launch.
Case = tuple[str, int, int, list[str], str, int, dict[str, int]]


def every_case(hidden: int, capability: int) -> list[Case]:
    """Lists every kernel and option at a width, for GPUs of a compute capability."""
    cases: list[Case] = [
        (name, hidden, layers, options, rows, capability, launched)
        for (name, options), layers, rows in itertools.product(OPTIONS, (1, 2, 3), ROWS)
        if name in WITH_LAYERS or layers == 2
        for launched in (TUNED if name == "forward" else [{}])
    ]
    for (name, options), layers in itertools.product(WHOLE_ROWS, (1, 2, 3)):
        whole = schedule.whole_rows(hidden, layers, torch.bfloat16, capability >= 90)
        if whole is None or (name not in WITH_LAYERS and layers != 2):
            continue
        if "second" not in options or whole.sums_apart:
            cases.append((name, hidden, layers, options, "*bf16", capability, {}))
    return cases


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
