"""The draws of plan_accuracy.py, the order of its files, and the figures of its last line."""

import random
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from bigtrk.cost.machine_constants import CPU
from bigtrk.errors import InputError
from bigtrk.planning.prediction import Predicted
from scripts.bench import plan_accuracy
from scripts.bench.plan_accuracy import (
    REFERENCE,
    Compared,
    by_reference,
    compare,
    exceeded,
    predictions,
    summary,
    tau,
)
from scripts.bench.plan_draws import EVENTS, Job, draw


def job(events: str, n: int) -> Job:
    return Job(events, sectors=False, ranks=1, settings=(f"model.hidden={n + 2}",), steps=3)


def compared(
    events: str, fitted: list[float], measured: list[float], drift: float = 1.0
) -> list[Compared]:
    """Runs whose predicted and measured times these are, in seconds; memory ten times as many."""
    return [
        Compared(
            job(events, n),
            Predicted(10 * a, a),
            Predicted(5 * a, a / 2),
            Predicted(10 * b, b),
            drift,
        )
        for n, (a, b) in enumerate(zip(fitted, measured, strict=True))
    ]


@pytest.mark.slow  # 27 s: all draws of several seeds are predicted
def test_runs_are_drawn_by_seed_and_cover_what_is_planned() -> None:
    jobs = draw(18)
    assert jobs == draw(18)
    assert len(jobs) >= 30
    settings = {value for one in jobs for value in one.settings}
    for name in ("interaction", "attention", "mlp"):
        assert f"model.name={name}" in settings
    for value in ("none", "layer", "chunk"):
        assert f"model.recompute={value}" in settings
    assert {"model.precision=fp32", "model.precision=bf16"} <= settings
    assert {"engine.name=fsdp2", "engine.ds_config=zero1", "engine.ds_config=zero3"} <= settings
    assert {"sampling.method=shadow", "sampling.method=sectors"} <= settings
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
    slower = compared("a", [1 + error for error in errors], [2.0] * 11, drift=2.0)
    assert by_reference(slower) == {
        "time_median": pytest.approx(0.5),
        "time_p90": pytest.approx(0.9),
        "least_drift": 2.0,
        "largest_drift": 2.0,
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


def test_the_reference_is_trained_between_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took 2 s after the calibration, and 1 s more each time."""
    jobs, times = [job("a", n) for n in range(6)], iter(np.arange(2.0, 9.0))
    trained: list[Job] = []

    def took(run: Path) -> Predicted:
        run.mkdir(parents=True)
        return Predicted(1e9, float(next(times)) if trained[-1] == REFERENCE else 10.0)

    monkeypatch.setattr(plan_accuracy, "train", lambda job, *_: trained.append(job))
    monkeypatch.setattr(plan_accuracy, "measured", took)
    rows = [{"fitted": {"peak_bytes": 1e9, "step_seconds": 5.0}}] * len(jobs)
    found = compare(jobs, tmp_path, [{**row, "default": row["fitted"]} for row in rows])
    assert trained == [REFERENCE, *jobs[:4], REFERENCE, *jobs[4:], REFERENCE]
    assert [one.drift for one in found] == [1.25] * 4 + [1.75] * 2
    assert compare(jobs, tmp_path, [{**row, "default": row["fitted"]} for row in rows]) == found
    assert len(trained) == 9, "what was measured is kept"
