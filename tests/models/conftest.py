"""Triton's interpreter, where there is no GPU."""

from collections.abc import Iterator

import pytest
import torch

from tests.models.interpreted import mended


@pytest.fixture
def interpreted_bf16() -> Iterator[None]:
    """Has the interpreter compute in bfloat16 as GPUs do."""
    if torch.cuda.is_available():
        yield
        return
    with mended():
        yield
