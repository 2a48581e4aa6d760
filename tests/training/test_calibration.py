"""The fit finds constants again that made its samples; one real warm-up."""

import pytest

from bigtrk.parallel.machine_constants import CPU
from bigtrk.training import calibration
from bigtrk.training.calibration import CASES, fit
from bigtrk.training.warmup import Case, Measured, measure_apart


def test_the_fit_finds_the_machine_that_made_the_samples() -> None:
    truth = CPU.model_copy(
        update={
            "flops": {"fp32": 2e11, "bf16": 7e11},
            "traffic": 2.5e10,
            "cached": 6e10,
            "operation": 2e-5,
            "process_bytes": 300_000_000,
        }
    )
    samples = [
        (case, Measured(calibration._seconds(case, truth), round(calibration._peak(case, truth))))
        for case in CASES
    ]
    found = fit(samples, CPU)
    for name in ("traffic", "cached", "operation", "process_bytes"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-3), name
    assert found.flops == pytest.approx(truth.flops, rel=1e-3)


def test_a_warm_up_measures_a_process_of_its_own() -> None:
    found = measure_apart(Case(200, 800, 8, layers=2, steps=2))
    assert 0 < found.seconds < 60
    assert 50 * 2**20 < found.peak_bytes < 4 * 2**30
