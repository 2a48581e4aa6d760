"""The only choice that is made by time: how many loads of the forward pass start ahead."""

from typing import Any

import pytest
import torch

from bigtrk.models.edges import tuning
from bigtrk.models.edges.tuning import STAGES, TIMED_BYTES, fastest, forward_stages
from bigtrk.models.edges.work import Shape

pytest.importorskip("triton")
SHAPE = Shape(hidden=64, layers=2, inputs=2, dtype=torch.bfloat16)
ROWS = TIMED_BYTES // 128


def test_the_fastest_are_chosen_of_those_that_fit() -> None:
    from triton.runtime.errors import OutOfResources

    def milliseconds(stages: int) -> float:
        if stages > 2:
            raise OutOfResources(200_000, 100_000, "shared memory")
        return {1: 0.5, 2: 0.4}[stages]

    assert fastest(milliseconds) == 2

    def none_fits(stages: int) -> float:
        raise OutOfResources(stages, 0, "shared memory")

    assert fastest(none_fits) == STAGES[0]


def test_the_first_large_pass_is_timed_in_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[tuple[int, Any, int]] = []

    def launch(n_rows: int, made: torch.Tensor, stages: int) -> None:
        launched.append((n_rows, made, stages))

    def milliseconds(measured: Any) -> float:
        measured()
        return -float(launched[-1][2])

    monkeypatch.setattr(tuning, "_milliseconds", milliseconds)
    monkeypatch.setattr(tuning, "_chosen", {})
    cpu = torch.empty(ROWS, 64, dtype=torch.bfloat16)
    assert forward_stages(SHAPE, cpu, launch) == STAGES[0]
    assert not launched, "there is no GPU"

    class OnGpu(torch.Tensor):
        is_cuda = True

    few, many = cpu[:-1].as_subclass(OnGpu), cpu.as_subclass(OnGpu)
    assert forward_stages(SHAPE, few, launch) == STAGES[0]
    assert not launched, "launches take most of the time"
    for made in (many, many, few):
        assert forward_stages(SHAPE, made, launch) == max(STAGES)
    assert [stages for _, _, stages in launched] == list(STAGES), "timed once"
    for n_rows, made, _ in launched:
        assert n_rows == len(made) == ROWS
        assert made.data_ptr() != cpu.data_ptr()
