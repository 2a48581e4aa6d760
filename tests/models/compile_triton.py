"""Compiles the Triton kernels for GPUs, without one: what the interpreter runs need not compile.

A program of its own, since the tests have chosen the interpreter.
"""

import itertools

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_source

from bigtrk.models.kernels import triton_kernels

# With ends or without.
KERNELS = [
    ("norm_relu", True),
    ("norm_relu", False),
    ("norm_relu_backward", False),
    ("relu_backward", True),
    ("relu_backward", False),
]
SIZES = {"hidden": 100, "height": 16, "width": 128}
INDEX = {"source": "*i64", "destination": "*i64"}
ENDS = "of_source", "of_destination", *INDEX


def compile_kernel(name: str, with_ends: bool, rows: str, capability: int) -> int:
    """Bytes of the machine code for rows of a type."""
    kernel = getattr(triton_kernels, name)
    absent = [] if with_ends else [end for end in ENDS if end in kernel.arg_names]
    constants = {**SIZES, **dict.fromkeys(absent)}
    others = {"rstd": "*fp32", "n_rows": "i32", **INDEX, **dict.fromkeys(constants, "constexpr")}
    types = {argument: others.get(argument, rows) for argument in kernel.arg_names}
    source = ASTSource(kernel, types, constants)
    return len(compile_source(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"])


if __name__ == "__main__":
    for case in itertools.product(KERNELS, ("*fp32", "*bf16"), (80, 90)):
        (name, with_ends), rows, capability = case
        print(*case, compile_kernel(name, with_ends, rows, capability))
