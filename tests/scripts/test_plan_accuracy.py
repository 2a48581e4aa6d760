"""The draws of plan_accuracy.py, the order of its files, and the figures of its last line."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from bigtrk.cost.machine_constants import CPU
from bigtrk.errors import InputError
from bigtrk.planning.prediction import Predicted
from scripts.bench import plan_accuracy, plan_draws
from scripts.bench.plan_accuracy import (
    Compared,
    compare,
    exceeded,
    predictions,
    repeated,
    summary,
    tau,
)
from scripts.bench.plan_draws import (
    COVERED,
    ENGINES,
    EVENTS,
    FILES,
    LEAST,
    SEVERAL,
    Events,
    Job,
    coverage,
    covered,
    draw,
)


def job(events: str, n: int) -> Job:
    return Job(events, sectors=False, ranks=1, settings=(f"model.hidden={n + 2}",), steps=3)


def compared(
    events: str, fitted: list[float], measured: list[float], apart: float = 0.0
) -> list[Compared]:
    """Runs whose predicted and measured times these are, in seconds; memory ten times as many. The
    two trainings of a run lie `apart` on both sides of what they took.
    """
    return [
        Compared(
            job(events, n),
            Predicted(10 * a, a),
            Predicted(5 * a, a / 2),
            (Predicted(10 * b, b - apart), Predicted(10 * b, b + apart)),
        )
        for n, (a, b) in enumerate(zip(fitted, measured, strict=True))
    ]


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws that predict nothing: every run is feasible, and some of 3 M edges alone spill them."""

    def spilling(job: Job, events: Events, share: float) -> Job:
        return replace(job, memory_gib=1 + share) if events == EVENTS[-1] else job

    monkeypatch.setattr(plan_draws, "_feasible", lambda *_: True)
    monkeypatch.setattr(plan_draws, "_spilling", spilling)
    monkeypatch.setattr(plan_draws, "_lasting", lambda job: job)


def test_short_steps_are_trained_on_for_several_epochs() -> None:
    def epochs(events: str, hidden: int, steps: int) -> int:
        settings = ("model.name=interaction", f"model.hidden={hidden}", "model.layers=4")
        return plan_draws._lasting(Job(events, False, 1, settings, steps)).epochs

    assert epochs("3 M edges", 64, 4) == 1
    assert 1 < epochs("61 k edges", 32, 4) < epochs("5 k edges", 32, 4) <= 40
    assert "training.epochs=3" in replace(job("5 k edges", 0), epochs=3).arguments(Path("work"))


def test_what_a_run_covers_is_read_from_it() -> None:
    """Four sectors are several on a rank on fewer than four ranks, unless each is a mini-batch."""
    mlp = ("model.name=mlp", *ENGINES["FSDP2"])
    on_three = Job("a", sectors=True, ranks=3, settings=mlp, steps=6)
    assert covered(on_three) == {SEVERAL, "model.name=mlp", "FSDP2"}
    assert SEVERAL not in covered(replace(on_three, ranks=4))
    assert SEVERAL not in covered(replace(on_three, sectors=False))
    batches = replace(on_three, settings=(*mlp, "sampling.method=sectors"))
    assert covered(batches) == {"sampling.method=sectors", "model.name=mlp", "FSDP2"}
    assert covered(Job("a", False, 1, (), 6, memory_gib=1.5)) == {FILES, "DDP"}


@pytest.mark.usefixtures("cheap")
def test_every_draw_covers_all_and_is_else_as_drawn_at_first() -> None:
    lacked = set[str]()
    for seed in range(50):
        generator, jobs = random.Random(seed), draw(seed)
        first = [job for events in EVENTS for job in plan_draws._drawn(events, generator)]
        counts, before = coverage(jobs), coverage(first)
        lack = {thing: max(0, LEAST - before[thing]) for thing in COVERED}
        assert all(counts[thing] >= LEAST for thing in COVERED)
        assert sum(a != b for a, b in zip(jobs, first, strict=True)) <= sum(lack.values())
        assert [job.events for job in jobs] == [job.events for job in first]
        lacked |= {thing for thing, number in lack.items() if number}
    assert len(lacked) > 1, "some draws lack something at first"


@pytest.mark.parametrize(("events", "spills"), [(EVENTS[0], False), (EVENTS[3], True)])
def test_a_run_has_files_where_its_edges_exceed_the_memory(events: Events, spills: bool) -> None:
    settings = ("model.name=interaction", "model.hidden=128", "model.recompute=chunk")
    job = plan_draws._spilling(Job(events.name, False, 1, settings, steps=6), events, share=0.0)
    assert (job.memory_gib is not None) == spills
    if job.memory_gib:
        _, cost, size, cut = plan_draws._laid(job, events)
        without = replace(cost, spills_beyond=0.0).memory(size, *cut).total
        limit, tensor = job.memory_gib * 2**30, 4 * 128 * size.sector(cut.parts).edges
        assert max(without, 0.99 * limit - tensor) <= cost.memory(size, *cut).total <= limit
        assert cost.spilled_bytes(size, *cut) > 0.2 * job.memory_gib * 2**30


@pytest.mark.slow  # 27 s: all draws of several seeds are predicted
def test_runs_are_drawn_by_seed_and_cover_what_is_planned() -> None:
    jobs = draw(18)
    assert jobs == draw(18)
    assert len(jobs) >= 30
    for of_seed in (jobs, draw(71)):
        counts = coverage(of_seed)
        assert all(counts[thing] >= LEAST for thing in COVERED)
    settings = {value for one in jobs for value in one.settings}
    assert "model.name=interaction" in settings
    for value in ("none", "layer", "chunk"):
        assert f"model.recompute={value}" in settings
    assert {"model.precision=fp32", "model.precision=bf16"} <= settings
    assert {one.ranks for one in jobs} == {1, 2, 3, 4}
    assert {one.sectors for one in jobs} == {False, True}
    # Several runs share an event, so that their order can be compared.
    assert all(sum(one.events == events.name for one in jobs) >= 4 for events in EVENTS)
    assert all(one.configuration(Path("work")) for one in jobs)


def test_tau_is_kendall_s_of_runs_on_the_same_events() -> None:
    generator = random.Random(0)
    times = {name: [generator.random() for _ in range(9)] for name in ("fitted", "measured")}
    found = compared("a", times["fitted"], times["measured"])
    assert tau(found) == pytest.approx(kendalltau(times["fitted"], times["measured"]).statistic)
    # Runs on other events are not compared with them.
    assert tau([*found, *compared("b", [1e9], [1e-9])]) == tau(found)


def test_the_last_line_has_medians_and_ninetieth_percentiles() -> None:
    errors = [0.1 * n for n in range(11)]
    found = compared("a", [1 + error for error in errors], [1.0] * 11)
    assert summary(found) == {
        "runs": 11,
        "memory_median": pytest.approx(0.5),
        "memory_p90": pytest.approx(0.9),
        "time_median": pytest.approx(0.5),
        "time_p90": pytest.approx(0.9),
        "tau": 0.0,
    }
    # The defaults predict half of that.
    assert exceeded(found) == pytest.approx({"memory": 2.0, "seconds": 2.0})


def test_predictions_are_written_once_and_stay_those_of_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, values = [job("a", 1), job("a", 2)], iter(np.arange(1.0, 100.0))
    monkeypatch.setattr(
        plan_accuracy, "predict_run", lambda *_: Predicted(float(next(values)), float(next(values)))
    )
    first = predictions(jobs, tmp_path, 0, CPU)
    written = (tmp_path / "predictions.json").read_bytes()
    assert predictions(jobs, tmp_path, 0, CPU) == first
    assert (tmp_path / "predictions.json").read_bytes() == written
    assert [row["name"] for row in first] == [one.name for one in jobs]
    with pytest.raises(InputError, match="is of other runs; choose another --work"):
        predictions(jobs[:1], tmp_path, 0, CPU)


def test_every_run_is_trained_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, and then all of them again, half as fast."""
    jobs, times = [job("a", n) for n in range(3)], iter([2.0, 2.0, 2.0, 4.0, 4.0, 4.0])
    trained: list[Job] = []

    def took(run: Path) -> Predicted:
        run.mkdir(parents=True)
        return Predicted(1e9, next(times))

    monkeypatch.setattr(plan_accuracy, "train", lambda job, *_: trained.append(job))
    monkeypatch.setattr(plan_accuracy, "measured", took)
    rows = [{"fitted": {"peak_bytes": 1e9, "step_seconds": 5.0}}] * len(jobs)
    found = compare(jobs, tmp_path, [{**row, "default": row["fitted"]} for row in rows])
    assert trained == [*jobs, *jobs]
    assert [one.measured for one in found] == [Predicted(1e9, 3.0)] * 3
    assert compare(jobs, tmp_path, [{**row, "default": row["fitted"]} for row in rows]) == found
    assert len(trained) == 6, "what was measured is kept"


def test_a_second_training_tells_how_well_any_could_be_predicted() -> None:
    found = compared("a", [9.0, 9.0, 9.0], [3.0, 4.0, 5.0], apart=1.0)
    assert repeated(found) == {
        "time_median": pytest.approx(1 - 3 / 5),
        "time_p90": pytest.approx(0.8 * (1 - 2 / 4) + 0.2 * (1 - 3 / 5)),
        "tau": 1.0,
    }
    turned = [
        replace(one, trained=(one.trained[0], Predicted(1.0, -one.trained[0].step_seconds)))
        for one in found
    ]
    assert repeated(turned)["tau"] == -1.0
