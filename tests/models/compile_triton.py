"""Compiles the Triton kernels for GPUs, without one: what the interpreter runs need not compile.

A program of its own, since the tests have chosen the interpreter.
"""

import itertools

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_source

from bigtrk.models.kernels import triton_kernels

KERNELS = "norm_relu", "norm_relu_backward", "relu_backward"
SIZES = {"hidden": 100, "height": 16, "width": 128}
COUNTS = {"n_rows": "i32", "n_nodes": "i32"}
ENDS = {"of_source": "*fp32", "of_destination": "*fp32", "source": "*i64", "destination": "*i64"}


def compile_kernel(name: str, rows: str, with_ends: bool, capability: int) -> int:
    """Bytes of the machine code for rows of a type."""
    kernel = getattr(triton_kernels, name)
    constants = SIZES if with_ends else {**SIZES, **dict.fromkeys(ENDS)}
    types = dict.fromkeys(kernel.arg_names, rows) | ENDS | COUNTS
    source = ASTSource(kernel, types | dict.fromkeys(constants, "constexpr"), constants)
    return len(compile_source(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"])


if __name__ == "__main__":
    for case in itertools.product(KERNELS, ("*fp32", "*bf16"), (True, False), (80, 90)):
        print(*case, compile_kernel(*case))
