"""The draws of plan_accuracy_gpu.py: any machine makes the same, of events that it prepares."""

from collections import Counter

import pytest

from scripts.gpu import plan_accuracy_gpu
from scripts.gpu.plan_accuracy_gpu import KINDS, draw

SEEDS = range(2)


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicts nothing, as most that is drawn has room."""
    monkeypatch.setattr(plan_accuracy_gpu, "_has_room", lambda *_: True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_draw_has_thirty_runs_on_one_rank(seed: int) -> None:
    jobs = draw(seed)
    assert jobs == draw(seed) != draw(seed + 1)
    assert len(jobs) == len({*jobs}) == 30
    assert Counter(job.events for job in jobs) == {events.name: 6 for events in KINDS}
    for job in jobs:
        assert (job.ranks, job.memory_gib) == (1, None)
        assert job.steps * job.epochs >= 12
        if job.events == KINDS[-1].name:
            assert not job.sectors
            assert not any(one.startswith("sampling.") for one in job.settings)


def test_edges_on_the_host_are_drawn_too() -> None:
    settings = {one for seed in SEEDS for job in draw(seed) for one in job.settings}
    assert {"model.recompute=offload", "model.recompute=chunk"} <= settings
