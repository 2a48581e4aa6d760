"""Compiles the Triton kernels for GPUs, without one, and prints a line of JSON for each of them.

    python -m tests.models.compile_triton CASES

A program of its own, since the tests have chosen the interpreter. CASES is JSON: a list of [kernel,
hidden, layers, options, type of the rows, compute capability, other options of the launch].
"""

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_source

from bigtrk.models.edges import (
    fused,
    schedule,
    triton_edges,
    triton_kernels,
    triton_partials,
    triton_sums,
    triton_whole_rows,
    tuning,
)
from tests.models.ptx import atomics

TYPES = {"*fp32": torch.float32, "*bf16": torch.bfloat16}
MODULES = {
    "norm_relu": triton_kernels,
    "norm_relu_backward": triton_kernels,
    "relu_backward": triton_kernels,
    "sum_at_ends": triton_sums,
    "sum_partials": triton_partials,
    "forward": triton_edges,
    "backward": triton_edges,
    "whole_forward": triton_whole_rows,
    "whole_backward": triton_whole_rows,
    "sum_inputs": triton_whole_rows,
    "sum_products": triton_whole_rows,
}
ENDS = "of_source", "of_destination", "source", "destination"
INT64, INT32 = (
    ("source", "destination"),
    (
        "source_starts",
        "source_order",
        "destination_starts",
        "destination_order",
        "turns",
    ),
)
# Weights are parameters, but of whole rows, sums float32.
WEIGHTS = "first", "second", "third"
FLOAT32 = (
    *WEIGHTS,
    "second_bias",
    "third_bias",
    "scales",
    "partials",
    "rstd",
    "of_first",
    "of_second",
    "of_second_bias",
    "of_third",
    "of_third_bias",
    "others_of_source",
    "others_of_destination",
)
# Numbers that Triton knows to be multiples of 16 where the rows' width is.
STRIDES = "rows_of_program", "first_stride", "of_state_stride", "weight_stride"
TERMS = 9  # of sum_products: what eight layers give
COUNTS = "n_rows", "n_partials", "n_lines", *STRIDES


def constants_of(
    name: str,
    names: list[str],
    hidden: int,
    layers: int,
    options: list[str],
    rows: str,
    hopper: bool,
) -> dict[str, Any]:
    """The constants of a kernel; `options`: what it has of "ends", "encoded", "decoded", "others",
    "adds", and "second" of its launches.
    """
    size = schedule.tile(hidden, TYPES[rows])
    values: dict[str, Any] = {
        "hidden": hidden,
        "layers": layers,
        "inputs": 2 if "encoded" in options else 1,
        "adds": "adds" in options,
        "block": schedule.block_rows(hidden, TYPES[rows]),
        **size._asdict(),
    }
    absent = ["encoded", "others", "others_of_source", "others_of_destination"]
    absent = [one for one in absent if one.partition("_")[0] not in options]
    if "decoded" in options:
        absent += ["after", "of_state", "outer_of_source", "outer_of_destination"]
    if layers < 3:
        absent += ["third", "third_bias", "of_third", "of_third_bias"]
    if layers < 2:
        absent += ["second", "second_bias", "of_second", "of_second_bias"]
    if MODULES[name] is triton_kernels:
        values["height"], values["width"] = schedule.feature_tile(hidden)
        absent += [] if "ends" in options else ENDS
    if name == "forward":
        values["height"] = 2 * size.height
    if MODULES[name] is triton_whole_rows:
        whole = schedule.whole_rows(hidden, layers, TYPES[rows], hopper)
        assert whole is not None
        launches = fused._launches(whole, layers)
        values |= launches["second" in options]._asdict() if name == "whole_backward" else {}
        heights = {"whole_backward": whole.height, "sum_inputs": schedule.SUM_HEIGHT}
        values["height"] = heights.get(name, schedule.FORWARD_HEIGHT)
    if name == "sum_at_ends":
        values["width"] = schedule.summed_columns(hidden, TYPES[rows])
    values |= dict.fromkeys(absent)
    return {key: value for key, value in values.items() if key in names}


def launch_options(name: str, hidden: int, layers: int, rows: str, hopper: bool) -> dict[str, int]:
    """The options of a kernel's launch, which the compiler takes."""
    if name == "sum_inputs":
        return {"num_warps": schedule.SUM_ROWS_WARPS, "num_stages": schedule.SUM_STAGES}
    if MODULES[name] is triton_whole_rows:
        whole = schedule.whole_rows(hidden, layers, TYPES[rows], hopper)
        assert whole is not None
        products = schedule.sum_products_warps(hidden)
        warps = {"whole_backward": whole.warps, "sum_products": products}
        forward = schedule.whole_rows_forward_warps(hidden)
        return {
            "num_warps": warps.get(name, forward),
            "num_stages": 1,
            "maxnreg": schedule.REGISTERS,
        }
    if MODULES[name] is triton_kernels:
        return {"num_warps": schedule.FEATURE_WARPS}
    if MODULES[name] is not triton_edges:
        return {"num_warps": schedule.SUM_WARPS}
    return {
        "num_warps": schedule.tile(hidden, TYPES[rows]).warps,
        "num_stages": schedule.BACKWARD_STAGES if name == "backward" else tuning.STAGES[0],
        "maxnreg": schedule.REGISTERS,
    }


def compiled(
    name: str,
    hidden: int,
    layers: int,
    options: list[str],
    rows: str,
    capability: int,
    launched: dict[str, int],
) -> dict[str, Any]:
    """Counts atomics in a kernel's PTX, and registers, spills and memory of its machine code; lists
    how its sums and products lay numbers on threads, which fixes their order.
    """
    kernel = getattr(MODULES[name], name)
    hopper = capability >= 90
    constants = constants_of(name, kernel.arg_names, hidden, layers, options, rows, hopper)
    types: dict[str, str] = dict.fromkeys(FLOAT32, "*fp32") | dict.fromkeys(COUNTS, "i32")
    types |= dict.fromkeys(INT64, "*i64") | dict.fromkeys(INT32, "*i32") | {"first": "*fp32"}
    if name == "sum_at_ends":
        types |= {"first": "i32", "of_source": "*fp32", "of_destination": "*fp32"}
    if MODULES[name] is triton_whole_rows:
        types |= dict.fromkeys(WEIGHTS, rows)
    types |= dict.fromkeys(constants, "constexpr")
    signature: dict[str, Any] = {
        argument: types.get(argument, rows) for argument in kernel.arg_names
    }
    tuples = [names for names in ("rows_of", "weights") if names in signature]
    signature |= dict.fromkeys(tuples, (rows,) * TERMS)
    aligned: dict[tuple[int, ...], Any] = {
        (i,): [["tt.divisibility", 16]]
        for i, (argument, type_) in enumerate(signature.items())
        if type_[0].startswith("*") or (argument in STRIDES and hidden % 16 == 0)
        if argument not in tuples
    }
    aligned |= {(i, j): [["tt.divisibility", 16]] for i in range(len(tuples)) for j in range(TERMS)}
    source = ASTSource(kernel, signature, constants, aligned)
    log, target = io.StringIO(), GPUTarget("cuda", capability, 32)
    with contextlib.redirect_stdout(log):
        launch = launch_options(name, hidden, layers, rows, hopper) | launched
        made = compile_source(source, target=target, options=launch)
    said = log.getvalue()
    return {
        "kernel": name,
        "hidden": hidden,
        "layers": layers,
        "options": options,
        "rows": rows,
        "capability": capability,
        "launched": launched,
        "sums": sorted(set(_sums(made.asm["ttgir"]))),
        "atomics": atomics(made.asm["ptx"]),
        "registers": _number(r"Used (\d+) registers", said),
        "spilled": _number(r"(\d+) bytes spill stores", said),
        "shared": made.metadata.shared,
    }


def _sums(code: str) -> Iterator[str]:
    """Yields each sum and product of a kernel with the layouts of what it reads and makes."""
    code = re.sub(r" loc\(.*$", "", code, flags=re.MULTILINE)  # of the source
    layouts = dict(re.findall(r"^(#\w+) = (.*)$", code, re.MULTILINE))
    # A sum has its operation in braces before its types, on lines of its own.
    for pattern in (
        r'"(tt\.reduce)"\(.*?\}\)[^\n]*? : (\([^\n]*)',
        r"(tt\w*\.\w*dot\w*) [^\n]* : ([^\n]*)",
    ):
        for operation, types in re.findall(pattern, code, re.DOTALL):
            named = re.sub(r"#\w+", lambda found: layouts.get(found[0], found[0]), types)
            yield f"{operation} {named}"


def _number(pattern: str, said: str) -> int:
    found = re.findall(pattern, said)
    assert found, f"ptxas said: {said}"
    return max(map(int, found))


if __name__ == "__main__":
    for case in json.loads(sys.argv[1]):
        print(json.dumps(compiled(*case)), flush=True)
