"""Triton's interpreter, where there is no GPU; the passes in C for several processors."""

import platform
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

from bigtrk.machine import cpu_info
from bigtrk.models.edges import native
from bigtrk.native_code import NATIVE, build
from tests.models.interpreted import mended, remembered

_X86 = ("-march=x86-64", "-march=x86-64-v3") if platform.machine() == "x86_64" else ()


@pytest.fixture(scope="session", autouse=True)
def quick_interpreter() -> Iterator[None]:
    """Has the interpreter list the functions of its language once, where it is used."""
    if torch.cuda.is_available() or find_spec("triton") is None:
        yield
        return
    with remembered():
        yield


@pytest.fixture
def interpreted_bf16() -> Iterator[None]:
    """Has the interpreter compute in bfloat16 as GPUs do."""
    if torch.cuda.is_available():
        yield
        return
    with mended():
        yield


@pytest.fixture(params=(NATIVE, *_X86))
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the passes in C compiled for a processor; this one can run them."""
    if native.library() is None:
        pytest.skip("no C compiler")
    if request.param.endswith("v3") and "avx2" not in (cpu_info("flags") or ""):
        pytest.skip("this processor has no AVX2")
    name, source, headers, flags = native.CODE
    of_it = [request.param if flag == NATIVE else flag for flag in flags]
    found = build(name, source, headers, of_it).library
    if found is None:
        pytest.skip(f"the compiler knows no {request.param}")
    monkeypatch.setattr(native, "library", lambda: found)
