"""Triton's interpreter, where there is no GPU; the instruction sets of this processor."""

from collections.abc import Iterator

import pytest
import torch

from bigtrk.models.edges import native
from tests.models.interpreted import mended


@pytest.fixture
def interpreted_bf16() -> Iterator[None]:
    """Has the interpreter compute in bfloat16 as GPUs do."""
    if torch.cuda.is_available():
        yield
        return
    with mended():
        yield


@pytest.fixture(params=native.SETS)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the passes in C use an instruction set, if this processor has it."""
    if native.library() is None:
        pytest.skip("no C compiler")
    found = native.instructions()
    if request.param not in found:
        pytest.skip(f"this processor has no {request.param}")
    used = found[: found.index(request.param) + 1]
    monkeypatch.setattr(native, "instructions", lambda: used)
