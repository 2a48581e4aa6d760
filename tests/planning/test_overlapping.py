"""The fit of an accelerator's rates finds those that made its samples."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from bigtrk.cost.activations import columns
from bigtrk.cost.machine_constants import H200, MachineConstants
from bigtrk.cost.rates import EngineAmount, EngineKind, Rates, overlapped, without
from bigtrk.planning.calibration import calibrate as calibration
from bigtrk.planning.calibration.fitting import Sample, event_of, predicted_seconds, sample_cost
from bigtrk.planning.calibration.overlapping import fit_overlapping, transfer_rate
from bigtrk.planning.calibration.warmup import Measured
from bigtrk.planning.calibration.warmup_cases import (
    AGAIN,
    ENGINES_ON_ACCELERATOR,
    OFFLOADED,
    ON_ACCELERATOR,
    SMALLEST,
    Case,
)

ENGINES: dict[EngineKind, dict[EngineAmount, float]] = {
    "zero3": {"tensors": 1e-4, "weights": 2e-10, "passes": 4e-3}
}
# Twice as slow as a data sheet lets one assume, with a host that is faster.
SECONDS = {
    **{kind: 2 * H200.alone.seconds[kind] for kind in ("fp32", "bf16", "fused", "traffic")},
    "products": H200.alone.seconds["products"],
    "operations": 4e-5,
    "batch": 3e-8,
    "steps": 2e-3,
}
RATES = Rates.model_validate({"seconds": SECONDS, "engines": ENGINES})
TRUTH = H200.model_copy(
    update={"alone": RATES, "together": RATES, "transfer": 3e10, "private_bytes": 2**26}
)
FEW = [one for one in ON_ACCELERATOR if one.hidden == 64 and one.recompute != "offload"]


def samples(truth: MachineConstants, cases: Sequence[Case]) -> list[Sample]:
    """Returns what a machine of these constants would measure."""
    return [sample(truth, case) for case in cases]


def sample(truth: MachineConstants, case: Case) -> Sample:
    bare = Sample(case, 1, 1.0, 0)
    cost = sample_cost(bare, truth)
    size = event_of(case).sector(1)
    read = truth.alone.of({"batch": cost.pass_amounts(size, 1)["batch"]})
    peak = int(cost.memory(event_of(case), 1, 1).total)
    return replace(bare, seconds=predicted_seconds(bare, truth), read_seconds=read, peak_bytes=peak)


@cache
def fitted() -> MachineConstants:
    engines = [one for one in ENGINES_ON_ACCELERATOR if one.engine in ("ddp", "zero3")]
    rates = fit_overlapping(samples(TRUTH, [*FEW, *engines]), H200)
    return H200.model_copy(update={"alone": rates, "together": rates})


def test_what_made_the_samples_is_found() -> None:
    found = fitted().alone
    assert found.seconds["batch"] == pytest.approx(3e-8, rel=1e-6)
    assert found.seconds["operations"] == pytest.approx(4e-5, rel=0.05)
    assert found.engines["zero3"] == pytest.approx(ENGINES["zero3"], rel=0.1)


def test_steps_that_wait_for_any_of_the_three_are_predicted() -> None:
    """Those of few edges wait for operations, of an edge MLP for reading, others for the GPU."""
    waits = set()
    for one in samples(TRUTH, FEW):
        assert predicted_seconds(one, fitted()) == pytest.approx(one.seconds, rel=0.15), one.case
        cost = sample_cost(one, TRUTH)
        amounts = cost.pass_amounts(event_of(one.case).sector(1), 1)
        beside = {kind: RATES.of({kind: amounts[kind]}) for kind in ("operations", "batch")}
        own = RATES.of(amounts) - sum(beside.values())
        taken = {**beside, "own": own}
        waits.add(max(taken, key=taken.__getitem__))
    assert waits == {"operations", "batch", "own"}


def test_the_longest_of_what_goes_on_at_once_counts() -> None:
    assert overlapped([3.0]) == 3.0
    assert overlapped([10.0, 1.0, 0.0]) == pytest.approx(10.0, rel=1e-3)
    assert 1.0 < overlapped([1.0, 1.0]) < 1.3
    for others in ([], [1.0], [1.0, 2.5]):
        assert without(overlapped([2.0, *others]), others) == pytest.approx(2.0)
    assert without(1.0, [2.0]) == 0.0


def test_edges_travel_as_fast_as_a_step_that_waits_for_them() -> None:
    moved = sample_cost(Sample(OFFLOADED, 1, 1.0, 0), H200).footprint(cut=False).moved
    expected = float(moved @ columns(event_of(OFFLOADED).sector(1))) / 0.5
    assert transfer_rate(Sample(OFFLOADED, 1, 0.5, 0), H200) == pytest.approx(expected)


def test_an_accelerator_is_measured_and_its_constants_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time all took 10 % longer; a process has 64 MiB beside what is counted."""
    of_engines = [one for one in ENGINES_ON_ACCELERATOR if one.hidden == 64 and one.layers == 2]
    asked: list[Sequence[Case]] = []

    def as_measured(cases: Sequence[Case], ranks: int = 1) -> Measured:
        assert ranks == 1
        asked.append(cases)
        slower = 1.1 if cases is AGAIN else 1.0
        found = [replace(one, seconds=slower * one.seconds) for one in samples(TRUTH, cases)]
        return Measured(found, None)

    few = [*FEW, *AGAIN, OFFLOADED]
    monkeypatch.setattr(calibration, "_on_cpu", calibration._on_accelerator)
    monkeypatch.setattr(calibration, "ON_ACCELERATOR", few)
    monkeypatch.setattr(calibration, "ENGINES_ON_ACCELERATOR", of_engines)
    monkeypatch.setattr(calibration, "measure_apart", as_measured)
    named = {"host": "here", "accelerator": "NVIDIA H200"}
    monkeypatch.setattr(calibration, "machine", lambda: named)
    monkeypatch.setattr(calibration, "accelerator", lambda: named["accelerator"])
    monkeypatch.setattr(calibration, "software", dict)
    found = calibration.calibrate(tmp_path / "calibration.json")
    assert asked == [[SMALLEST], few, AGAIN, of_engines]
    assert found.repeated == pytest.approx(0.1)
    assert found.private_bytes == pytest.approx(2**26, abs=1)
    assert found.transfer == pytest.approx(3e10, rel=0.01)
    assert (found.accelerator, found.shared, found.calibrated) == ("NVIDIA H200", False, True)
    assert found.alone == found.together


def test_every_engine_is_measured_beside_ddp() -> None:
    def engines_of(is_of: Callable[[Case], bool]) -> set[str]:
        return {one.engine for one in ENGINES_ON_ACCELERATOR if is_of(one)}

    for name in ("interaction", "attention", "mlp"):
        assert engines_of(lambda one, name=name: one.name == name) == {  # type: ignore[misc]
            "ddp",
            "fsdp2",
            "zero1",
            "zero3",
        }
