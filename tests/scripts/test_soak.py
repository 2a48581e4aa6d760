"""The parts of scripts/faults/soak.py that need no training."""

import mmap
import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from scripts.faults.soak import KINDS, WARM_UP, counted, grown, thinned, trends
from scripts.faults.trends import WINDOWS, Trend, trend
from scripts.faults.watched import Held, Sample, held, steps_done

STEPS = 2000
Change = Callable[[Sample], Sample]


def series(change: Change = lambda sample: sample) -> list[Sample]:
    """Fakes a healthy training, or one that something happens to; memory and files come and go."""
    rng, found = random.Random(0), []
    for step in range(0, STEPS + 1, 5):
        ranks = tuple(
            Held(
                memory=300 + rng.uniform(-3, 3) - 50 * (step < WARM_UP * STEPS),
                handles=40 + (rng.random() < 0.05),
                mapped=rng.randrange(3),
                threads=12,
            )
            for _ in range(2)
        )
        found.append(change(Sample(step, 3, ranks)))
    return found


def judged(samples: list[Sample]) -> list[str]:
    after = counted(samples, STEPS)
    return grown(trends(after), [sample.processes for sample in after])


def more(kind: str, amount: Callable[[int], float]) -> Change:
    """Rank 1 holds so much more after so many steps."""

    def change(sample: Sample) -> Sample:
        first, second = sample.ranks
        found = getattr(second, kind) + amount(sample.step)
        return replace(sample, ranks=(first, replace(second, **{kind: found})))

    return change


def test_what_stays_the_same_passes() -> None:
    assert judged(series()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_grows_is_named(kind: str) -> None:
    per_step = 0.005  # MiB, or counts
    assert judged(series(more(kind, lambda step: int(per_step * step)))) == [f"{kind} of rank 1"]


@pytest.mark.parametrize("kind", ["handles", "mapped", "threads"])
@pytest.mark.parametrize("at", [800, 1200, 1600])
def test_one_that_is_never_given_back_is_seen(kind: str, at: int) -> None:
    assert judged(series(more(kind, lambda step: step > at))) == [f"{kind} of rank 1"]


def test_memory_that_falls_or_grows_in_the_warm_up_alone_passes() -> None:
    assert judged(series(more("memory", lambda step: -0.01 * step))) == []
    assert judged(series(more("memory", lambda step: min(step, WARM_UP * STEPS)))) == []


def test_processes_must_not_change() -> None:
    assert judged(series(lambda s: replace(s, processes=3 + (s.step == 1200)))) == ["processes"]
    # Those of the start and the end come and go.
    ends = lambda s: replace(s, processes=3 - (s.step in (0, STEPS)))  # noqa: E731
    assert judged(series(ends)) == []


def test_the_slope_is_that_of_the_line() -> None:
    steps = list(range(0, 1000, 7))
    found = trend(steps, [5 + 0.25 * step for step in steps])
    assert found.slope == pytest.approx(0.25)
    assert found.growth == pytest.approx(0.25 * steps[-1])
    assert found.error == pytest.approx(0, abs=1e-9)
    constant = trend(steps, [3] * len(steps))
    assert (constant.slope, constant.error, constant.grows(0)) == (0, 0, False)


def test_the_error_is_that_of_the_slope() -> None:
    """The slopes of many series of noise deviate by what each says of itself."""
    rng, steps = random.Random(1), list(range(400))
    found = [trend(steps, [rng.gauss(0, 1) for _ in steps]) for _ in range(200)]
    deviation = (sum(one.slope**2 for one in found) / len(found)) ** 0.5
    stated = sum(one.error for one in found) / len(found)
    assert deviation == pytest.approx(stated, rel=0.2)


def test_growth_is_neither_small_nor_chance() -> None:
    found = Trend(low=0, high=3, level=2, slope=1e-3, error=3e-4, steps=2000)
    assert found.grows(1.9)
    assert not found.grows(2.1)
    assert not replace(found, error=4e-4).grows(1.9)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InputError, match="--steps"):
        trend(range(WINDOWS - 1), [0.0] * (WINDOWS - 1))


def test_series_are_thinned() -> None:
    found = thinned([sample for sample in series() for _ in range(3)])
    assert 100 < len(found["step"]) <= 200
    assert found["step"][-1] > 0.95 * STEPS
    assert [len(rank["memory"]) for rank in found["by_rank"]] == [len(found["step"])] * 2


def test_what_a_process_holds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(mmap.PAGESIZE))
    before, stop = held([os.getpid()], tmp_path), threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    with (
        # From the system: the allocator may give back others' memory, or have some to give.
        mmap.mmap(-1, 2**25, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block,
        path.open("rb") as handle,
        mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert mapped[0] == 0
        block[:: mmap.PAGESIZE] = b"1" * (2**25 // mmap.PAGESIZE)
        after = held([os.getpid()], tmp_path)
        both = held([os.getpid()] * 2, tmp_path)
    stop.set()
    thread.join()
    assert after.memory - before.memory == pytest.approx(32, abs=8)
    # Python's mmap keeps a descriptor of its own.
    assert after.handles - before.handles == 2
    assert (after.mapped - before.mapped, after.threads - before.threads) == (1, 1)
    assert both.threads == 2 * after.threads


def test_steps_are_counted_in_the_record(tmp_path: Path) -> None:
    assert steps_done(tmp_path) == 0
    lines = ['{"kind": "step", "step": 0}', '{"kind": "epoch"}', '{"kind": "step", "step": 1}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert steps_done(tmp_path) == 2
