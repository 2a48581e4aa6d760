"""The fit finds constants again that made its samples; one real warm-up."""

import os
from pathlib import Path

import pytest

from bigtrk.cost.machine_constants import CPU, DEFAULTS, MachineConstants
from bigtrk.disk.files import write_json
from bigtrk.planning import calibration
from bigtrk.planning.calibration import CASES, fit
from bigtrk.planning.warmup import Case, Measured, measure_apart
from bigtrk.training.costs import find_machine
from tests.answers import NO_HOME, Place
from tests.programs import run_here

FIND = "from bigtrk.training.costs import find_machine\nprint(find_machine(None).name)\n"
DEFAULT_NAMES = {machine.name for machine in DEFAULTS.values()}


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


def test_the_calibration_is_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    default = find_machine(None)
    own, usual = tmp_path / "own", tmp_path / "home/.cache"
    for named, folder in ((str(own), own), ("", usual)):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert find_machine(None) == default
        here = CPU.model_copy(update={"name": str(folder)})
        write_json(folder / "bigtrk/calibration.json", here.model_dump(mode="json"))
        assert find_machine(None) == here


def test_a_user_without_a_home_has_no_calibration(tmp_path: Path) -> None:
    answer, said = Place(tmp_path).ask(NO_HOME + FIND)
    assert answer in DEFAULT_NAMES
    assert said == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
def test_a_home_that_may_not_be_read_has_no_calibration(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.home.chmod(0)
    assert place.ask(FIND).answer in DEFAULT_NAMES


def test_calibrating_asks_for_a_place_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(path: Path) -> MachineConstants:
        write_json(path, CPU.model_dump(mode="json"))
        return CPU

    monkeypatch.setattr(calibration, "calibrate", measure)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = ["bigtrk", "plan", "--calibrate", "--json"]
    assert run_here(command, monkeypatch, capsys)[0] == 0
    folder = tmp_path / "cache/bigtrk"
    assert [path.name for path in folder.iterdir()] == ["calibration.json"]
    assert folder.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(calibration, "calibrate", lambda _: pytest.fail("it measures"))
    status, _, said = run_here(command, monkeypatch, capsys)
    assert (status, said) == (2, f"bigtrk: error: {tmp_path}/file: is not a folder; remove it\n")


@pytest.mark.slow  # a quarter of a minute
def test_a_warm_up_measures_a_process_of_its_own() -> None:
    found = measure_apart(Case(200, 800, 8, layers=2, steps=2))
    assert 0 < found.seconds < 60
    assert 50 * 2**20 < found.peak_bytes < 4 * 2**30
