"""Compiles the Triton kernels that a layer launches on a GPU, without one, and says what they are.

    python -m tests.models.compile_triton CASES

prints a line of JSON for each. A program of its own, since the tests have chosen the interpreter.
CASES is JSON: a list of [hidden, linear layers, whether the encoded edges are read, type of the
rows, compute capability].
"""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_source
from triton.runtime.jit import KernelInterface

from bigtrk.models.edges import fused, schedule, triton_passes
from bigtrk.models.edges.fused_pass import FusedEdgePass
from bigtrk.models.interaction_gnn import activations
from bigtrk.models.protocol import Ends
from tests.models import nodes, test_fused_mlp
from tests.models.fused import Case, computed, make

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
}
ALIGNED = [["tt.divisibility", 16]]
# Numbers that Triton knows to be multiples of 16 where the rows' width is.
STRIDES = "rows_of_program", "first_stride", "given", "strides"
TERMS = 9  # of a sum of products: what eight layers give
_PRODUCT = re.compile(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma")
_ATOMIC = re.compile(
    r"(?:^|[;:{}])\s*(?:@!?%?\w+\s+)?((?:atom|red|multimem\.red|cp\.reduce)\.\S+)", re.MULTILINE
)


class Launch(NamedTuple):
    """A kernel and what it is launched with."""

    kernel: Any
    arguments: tuple[Any, ...]
    named: dict[str, Any]


def launched(case: Case, capability: int) -> list[Launch]:
    """Lists what passes over edges of `case` launch, each with the options that it may have."""
    found: list[Launch] = []
    inputs = make(case)
    ends = Ends.between(*inputs.shares, inputs.edge_index)

    def launch(kernel: Any, _: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments, **named: found.append(Launch(kernel, arguments, named))

    with (
        patch.object(KernelInterface, "__getitem__", launch),
        patch.object(fused, "capability", lambda _: capability // 10),
        patch.object(triton_passes, "usable", lambda *_: True),
    ):
        computed(inputs, blocks=2)
        weights = inputs.weights
        rows = inputs.after, inputs.inputs[0].clone()
        fused.backward(inputs.inputs, ends, weights, rows[0], None, rows[1], inputs.weights, False)
        products = [rows[0]] * TERMS, [inputs.of_state] * TERMS, None, [rows[1]], case.dtype
        fused.products(*products, transposed=True, written=1)
        between = activations(case.layers)
        for kind in ((1, 0), (2, 0), (0, 6)) if case.dtype == torch.bfloat16 else ():
            each = (*between, "norm", "linear") if kind[0] else tuple(between)
            test_fused_mlp.computed(test_fused_mlp.Case(each, case.hidden, kind[0], 9, kind[1]))
        for n_owned in (50, 70):  # of 70
            sizes = case.hidden, case.layers, case.encoded, True, 70, n_owned, case.dtype
            nodes.computed(nodes.NodeCase(*sizes), FusedEdgePass, torch.device("cpu"))
    return found


def source_of(launch: Launch) -> tuple[ASTSource, dict[str, Any]]:
    """Returns what Triton compiles for a launch, and the options of the compiler."""
    names, named = launch.kernel.arg_names, launch.named
    given = dict(zip(names, launch.arguments, strict=False)) | named
    signature: dict[str, Any] = {}
    aligned: dict[tuple[int, ...], Any] = {}
    for i, name in enumerate(names):
        value = given[name]
        if name in named or value is None:
            signature[name] = "constexpr"
        elif isinstance(value, tuple):
            signature[name] = tuple(map(_kind, value))
            aligned |= {(i, j): ALIGNED for j, one in enumerate(value) if _is_aligned(name, one)}
        else:
            signature[name] = _kind(value)
            aligned |= {(i,): ALIGNED} if _is_aligned(name, value) else {}
    constants = {name: given[name] for name, kind in signature.items() if kind == "constexpr"}
    options = {name: value for name, value in named.items() if name not in names}
    return ASTSource(launch.kernel, signature, constants, aligned), options


def _kind(value: Any) -> str:
    return POINTERS[value.dtype] if isinstance(value, Tensor) else "i32"


def _is_aligned(name: str, value: Any) -> bool:
    return isinstance(value, Tensor) or (name in STRIDES and value % 16 == 0)


def compiled(source: ASTSource, options: dict[str, Any], capability: int) -> dict[str, Any]:
    """Counts atomics in a kernel's PTX, and registers, spills and memory of its machine code."""
    log, target = io.StringIO(), GPUTarget("cuda", capability, 32)
    with contextlib.redirect_stdout(log):
        made = compile_source(source, target=target, options=options)
    said, names = log.getvalue(), source.fn.arg_names
    return {
        "kernel": source.fn.__name__,
        "hidden": source.constants[names.index("hidden"),],
        "fp32": "bf16" in names and not source.constants[names.index("bf16"),],
        "capability": capability,
        "atomics": atomics(made.asm["ptx"]),
        "registers": _number(r"Used (\d+) registers", said),
        "spilled": _number(r"(\d+) bytes spill stores", said),
        "shared": made.metadata.shared,
        "threads": 32 * made.metadata.num_warps,
        "ahead": made.asm["ptx"].count("cp.async"),
        "rows_alone": any(names[i] == "ends" for (i,) in source.constants),
        "multiplies": "tt.dot" in made.asm["ttir"],
        "tf32": re.search(r"mma\S*tf32", made.asm["ptx"]) is not None,
        "products": sorted(set(_PRODUCT.findall(made.asm["ptx"]))),
    }


def atomics(ptx: str) -> list[str]:
    """Returns the instructions that change memory atomically, of all types and spaces. A statement
    begins with its instruction, except a label and a predicate.
    """
    return _ATOMIC.findall(ptx)


def _number(pattern: str, said: str) -> int:
    found = re.findall(pattern, said)
    assert found, f"ptxas said: {said}"
    return max(map(int, found))


if __name__ == "__main__":
    done = set()
    for hidden, layers, encoded, rows, capability in json.loads(sys.argv[1]):
        case = Case(hidden, layers, encoded, dtype=TYPES[rows])
        if schedule.layer_tile(hidden, layers, case.dtype, capability // 10) is None:
            continue
        for launch in launched(case, capability):
            source, options = source_of(launch)
            key = source.hash(), str(options), capability
            if key not in done:
                done.add(key)
                print(json.dumps(compiled(source, options, capability)), flush=True)
