"""The passes over edges in C, compiled once per machine; float32 and bfloat16 on CPUs.

Registered as torch operators, so that what counts memory and time (`bigtrk plan`) sees them.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from bigtrk.files import atomic_path
from bigtrk.models.kernels.plain import Ends

SOURCE, PASSES = (Path(__file__).with_name(name) for name in ("native.c", "passes.h"))
FLAGS = (
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
)
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels; None without a C compiler.

    torch's own OpenMP runtime is already in the process, and the kernels use it and its threads.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    path = _folder() / f"kernels-{_key(compiler)}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            command = [
                compiler,
                *FLAGS,
                "-shared",
                "-fPIC",
                str(SOURCE),
                "-o",
                str(temporary),
                "-lm",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                temporary.touch()  # not tried again
    if not path.stat().st_size:
        return None
    return ctypes.CDLL(str(path))


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "bigtrk"


def _key(compiler: str) -> str:
    """What decides the result: the source, the flags, the compiler and the machine."""
    facts = [
        SOURCE.read_text(),
        PASSES.read_text(),
        *FLAGS,
        compiler,
        platform.machine(),
        _cpu_flags(),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _cpu_flags() -> str:
    """The instruction sets of this CPU: a home folder is shared by unlike hosts."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def usable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether these kernels compute rows of `dtype` on `device`."""
    return device.type == "cpu" and dtype in NAMES and library() is not None


def norm_relu(z: Tensor, ends: Ends | None) -> Tensor:
    """As plain.norm_relu."""
    result: Tensor = _norm_relu(z, *_unpacked(ends))
    return result


def norm_relu_backward(grad: Tensor, z: Tensor, ends: Ends | None) -> Tensor:
    """As plain.norm_relu_backward."""
    result: Tensor = _norm_relu_backward(grad, z, *_unpacked(ends))
    return result


def relu_backward(grad: Tensor, e: Tensor, ends: Ends | None) -> Tensor:
    """As plain.relu_backward."""
    result: Tensor = _relu_backward(grad, e, *_unpacked(ends))
    return result


@torch.library.custom_op("bigtrk::norm_relu", mutates_args=())
def _norm_relu(
    z: Tensor,
    of_source: Tensor | None,
    of_destination: Tensor | None,
    source: Tensor | None,
    destination: Tensor | None,
) -> Tensor:
    return _call("norm_relu", [z], [of_source, of_destination, source, destination])


@torch.library.custom_op("bigtrk::norm_relu_backward", mutates_args=())
def _norm_relu_backward(
    grad: Tensor,
    z: Tensor,
    of_source: Tensor | None,
    of_destination: Tensor | None,
    source: Tensor | None,
    destination: Tensor | None,
) -> Tensor:
    return _call("norm_relu_backward", [grad, z], [of_source, of_destination, source, destination])


@torch.library.custom_op("bigtrk::relu_backward", mutates_args=())
def _relu_backward(
    grad: Tensor,
    e: Tensor,
    of_source: Tensor | None,
    of_destination: Tensor | None,
    source: Tensor | None,
    destination: Tensor | None,
) -> Tensor:
    ends = [of_source, of_destination, source, destination]
    return _call("relu_backward", [grad], ends, after=[e])


@_norm_relu.register_fake
def _(z: Tensor, *_: Tensor | None) -> Tensor:
    return torch.empty_like(z)


@_norm_relu_backward.register_fake
def _(grad: Tensor, *_: Tensor | None) -> Tensor:
    return torch.empty_like(grad)


@_relu_backward.register_fake
def _(grad: Tensor, *_: Tensor | None) -> Tensor:
    return torch.empty_like(grad)


def _unpacked(ends: Ends | None) -> tuple[Tensor | None, ...]:
    return (None, None, None, None) if ends is None else ends


def _call(
    name: str, rows: list[Tensor], ends: list[Tensor | None], after: list[Tensor] | None = None
) -> Tensor:
    first = rows[0]
    out = torch.empty_like(first)
    tensors = [*rows, *ends, *(after or []), out]
    assert all(t is None or t.is_contiguous() for t in tensors)
    assert all(t.dtype == first.dtype for t in (*rows, *(after or [])))
    pointers = [ctypes.c_void_p(t.data_ptr() if t is not None else None) for t in tensors]
    n_rows, hidden = first.shape
    kernels = library()
    assert kernels is not None, "usable() says whether there are any"
    kernel = getattr(kernels, f"{name}_{NAMES[first.dtype]}")
    n_nodes = 0 if ends[0] is None else len(ends[0])
    if kernel(*pointers, *(ctypes.c_long(n) for n in (n_rows, hidden, n_nodes))):
        raise IndexError(f"an edge ends outside of the {n_nodes} nodes of its graph")
    return out
