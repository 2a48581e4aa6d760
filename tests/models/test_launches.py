"""The launches of a training step, the bytes that they read and write, and waits for the GPU."""

import pytest

from tests.models.launches import CONFIGURATION, count_step

pytest.importorskip("triton")
# The best numbers reached: who lowers one writes it here. The goal was 150 launches at every number
# of edges, and 110 GB at the largest.
MOST_LAUNCHES = {1_000: 143, 3_000_000: 147, 6_800_000: 147}
MOST_GIGABYTES = {6_800_000: 109.5}
MOST_WAITS = 2
BYTES_OF_EDGE, BYTES_OF_NODE = 33, 16  # that are uploaded


@pytest.mark.parametrize("n_edges", MOST_LAUNCHES)
def test_launches_and_bytes_of_a_step(n_edges: int) -> None:
    _, step = count_step(n_edges)
    assert step.launches.total() <= MOST_LAUNCHES[n_edges], step.launches.most_common(20)
    assert step.n_bytes / 1e9 <= MOST_GIGABYTES.get(n_edges, 1e9)
    assert "whole_forward" in step.launches
    assert [name for name in step.launches if "adam" in name] == ["aten._fused_adamw_"]


@pytest.mark.parametrize("training", [{}, {"spike_guard": "skip"}], ids=str)
def test_a_step_waits_twice_at_most(training: dict[str, str]) -> None:
    settings = CONFIGURATION.training.model_copy(update=training)
    _, step = count_step(1000, CONFIGURATION.model_copy(update={"training": settings}))
    assert 1 <= len(step.waits) <= MOST_WAITS, step.waits
    assert step.uploaded < 100, "counts alone"


def test_bytes_that_are_uploaded() -> None:
    making, _ = count_step(1000)
    assert making.uploaded <= BYTES_OF_EDGE * 1000 + BYTES_OF_NODE * 50 + 100
    assert making.waits == []
