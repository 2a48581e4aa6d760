"""The fit finds constants again that made its samples; one real warm-up."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bigtrk.cost.machine_constants import CPU, DEFAULTS, H200, MachineConstants
from bigtrk.cost.rates import Rates
from bigtrk.disk.files import write_json
from bigtrk.errors import InputError
from bigtrk.graphs.sector import whole_sector
from bigtrk.planning.calibration import calibrate as calibration
from bigtrk.planning.calibration import fitting
from bigtrk.planning.calibration.calibrate import fit
from bigtrk.planning.calibration.fitting import Sample, predicted_seconds
from bigtrk.planning.calibration.synthetic import synthetic_graph
from bigtrk.planning.calibration.warmup import Measured, measure_apart
from bigtrk.planning.calibration.warmup_cases import CASES, ENGINES, GRID, LEAST, LONG, Case
from bigtrk.training.costs import find_machine
from bigtrk.training.settings import Configuration
from tests.answers import NO_HOME, Place
from tests.programs import run_here

FIND = "from bigtrk.training.costs import find_machine\nprint(find_machine(None).name)\n"
DEFAULT_NAMES = {machine.name for machine in DEFAULTS.values()}


@cache
def by_default(ranks: int) -> list[Sample]:
    """Returns what a machine of the default constants would measure."""
    return samples(CPU, ranks)


def samples(truth: MachineConstants, ranks: int) -> list[Sample]:
    """Returns what a machine of these constants would measure."""
    bare = [Sample(case, ranks, 1.0, 0) for case in (*CASES, *LONG, *ENGINES)]
    return [replace(one, seconds=predicted_seconds(one, truth)) for one in bare]


def test_graphs_of_a_calibration_are_in_order_as_built_ones_are() -> None:
    graph = synthetic_graph(40, 300, Configuration())
    assert graph.n_edges == 300
    assert whole_sector(graph).edge_index is graph.edge_index


def test_the_fit_finds_the_machine_that_made_the_samples() -> None:
    def slower(rates: Rates, factor: float) -> Rates:
        seconds = {kind: factor * value for kind, value in rates.seconds.items()}
        known = {**seconds, "products": 5e-11, "operations": 1e-5}
        return Rates(seconds=known, engines=rates.engines)

    truth = CPU.model_copy(
        update={"alone": slower(CPU.alone, 2), "together": slower(CPU.together, 0.5)}
    )
    found = fit(samples(truth, 1), samples(truth, 2), CPU)
    for name in ("alone", "together"):
        ours, theirs = getattr(found, name), getattr(truth, name)
        assert ours.seconds == pytest.approx(theirs.seconds, rel=0.02), name
        for kind, known in theirs.engines.items():
            amounts = {name: ours.engines[kind].get(name, 0.0) for name in known}
            assert amounts == pytest.approx(known, rel=0.02), (name, kind)
        assert all(c.factor == pytest.approx(1.0, rel=1e-2) for c in ours.corrections)
    assert max(map(abs, found.fit["relative_errors"]["seconds"])) < 0.01


def test_what_an_engine_takes_in_each_pass_is_told_by_steps_of_several() -> None:
    """Steps of one pass that took 4 ms longer by chance do not say so of each of four."""
    measured = [
        replace(one, seconds=one.seconds + 0.004)
        if one.case.engine == "zero3" and one.case.events == 1
        else one
        for one in by_default(1)
    ]
    [asked] = [one for one in ENGINES if (one.name, one.engine, one.events) == ("mlp", "zero3", 4)]
    assert asked.configuration(2).training.events_per_step == 8

    def told(samples: Sequence[Sample]) -> float:
        rates = CPU.alone.model_copy(update={"engines": fitting.fit_engines(samples, CPU)})
        return ratio(asked, CPU.model_copy(update={"alone": rates}))

    assert told(measured) < 1.2
    assert told([one for one in measured if one.case.events == 1]) > 1.3


def slowed(measured: Sequence[Sample], is_slow: Callable[[Case], bool]) -> list[Sample]:
    """Has the cases that are slow take 1.5 times as long."""
    assert any(is_slow(one.case) for one in measured)
    return [
        replace(one, seconds=1.5 * one.seconds) if is_slow(one.case) else one for one in measured
    ]


def ratio(asked: Case, found: MachineConstants) -> float:
    """Returns how many times as long a case takes as by the defaults."""
    sample = Sample(asked, 1, 1.0, 0)
    return predicted_seconds(sample, found) / predicted_seconds(sample, CPU)


def test_what_counts_do_not_see_becomes_a_correction() -> None:
    """A model that takes 1.5 times as long at one width does so in the prediction, too."""
    slow = slowed(by_default(1), lambda case: (case.name, case.hidden) == ("attention", 64))
    found = fit(slow, by_default(2), CPU)
    for recompute in ("none", "layer"):
        asked = Case(6_000, 90_000, 64, "attention", 4, recompute)
        assert ratio(asked, found) == pytest.approx(1.5, rel=0.08), recompute
        assert ratio(replace(asked, hidden=16), found) == pytest.approx(1.0, rel=0.05)
    other = Case(6_000, 90_000, 64, "interaction", 4)
    assert ratio(other, found) == pytest.approx(1.0, rel=0.05)


def test_what_counts_do_not_see_of_sparse_graphs_alone_is_corrected_on_them_alone() -> None:
    def is_slow(case: Case) -> bool:
        return (case.name, case.hidden) == ("attention", 64) and case.edges < 3 * case.nodes

    found = fit(slowed(by_default(1), is_slow), by_default(2), CPU)
    for nodes, slower in ((20_000, 1.5), (2_000, 1.0)):
        asked = Case(nodes, 20_000, 64, "attention", 4, "layer")
        assert ratio(asked, found) == pytest.approx(slower, rel=0.1), nodes


def test_widths_that_were_measured_in_one_way_tell_the_others() -> None:
    """`chunk` alone is measured at 96."""
    slow = slowed(by_default(1), lambda case: (case.name, case.hidden) == ("interaction", 96))
    asked = Case(2_000, 20_000, 96, recompute="layer")
    assert asked not in [one.case for one in slow]
    assert 1.3 < ratio(asked, fit(slow, by_default(2), CPU)) < 1.5


def test_long_passes_are_corrected_apart_from_short_ones() -> None:
    """All of the long ones that keep everything take 1.5 times as long."""

    def is_slow(case: Case) -> bool:
        return case in LONG and case.recompute == "none"

    found = fit(slowed(by_default(1), is_slow), by_default(2), CPU)
    for hidden in (32, 64):
        asked = Case(120_000, 1_200_000, hidden, "attention", 3, "none")
        assert ratio(asked, found) == pytest.approx(1.5, rel=0.1), hidden
        short = replace(asked, nodes=3_000, edges=30_000)
        assert ratio(short, found) == pytest.approx(1.0, rel=0.05), hidden
        assert ratio(replace(asked, recompute="layer"), found) < 1.2, hidden


def test_the_least_passes_are_corrected_apart_from_others() -> None:
    """All of the least ones of attention networks, whatever their width, take 1.5 times as long."""

    def is_slow(case: Case) -> bool:
        return case.name == "attention" and (case in LEAST or case in ENGINES)

    found = fit(slowed(by_default(1), is_slow), by_default(2), CPU)
    for hidden in (24, 64):
        asked = Case(300, 1_000, hidden, "attention", 3, "layer")
        assert ratio(asked, found) == pytest.approx(1.4, rel=0.1), hidden
        assert ratio(replace(asked, nodes=9_000, edges=90_000), found) == pytest.approx(
            1.0, rel=0.05
        )
        assert ratio(replace(asked, name="interaction"), found) == pytest.approx(1.0, rel=0.05)


def test_the_noise_of_single_steps_is_not_taken_for_a_correction() -> None:
    """Little more than half of 10 % in each case is left in what is predicted."""
    noise = np.random.default_rng(0)
    measured = [
        replace(one, seconds=one.seconds * float(np.exp(noise.normal(0, 0.1))))
        for one in by_default(1)
    ]
    found = fit(measured, by_default(2), CPU)
    left = [math.log(ratio(case, found)) for case in GRID]
    assert np.std(left) < 0.065
    raw = [math.log(one.seconds / predicted_seconds(one, CPU)) for one in measured]
    assert np.std(raw) > 0.09


def test_narrow_models_are_corrected_though_much_of_a_step_is_not_their_pass() -> None:
    plain = [one for one in by_default(2) if one.case.engine == "ddp"]
    found = fitting._corrections(plain, CPU, CPU.together)
    corrected = {(c.model, c.recompute, c.precision, c.hidden) for c in found}
    for recompute in ("none", "layer", "chunk"):
        assert ("interaction", recompute, "bf16", 16) in corrected


def test_an_earlier_version_s_calibration_is_to_be_made_again(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    known = CPU.model_dump(mode="json")
    size = known.pop("private_bytes")
    with_libraries = {**known, "process_bytes": size}
    named = {"model": "mlp", "recompute": "none", "precision": "fp32", "hidden": 16}
    without_length = CPU.model_dump(mode="json")
    without_length["alone"]["corrections"] = [{**named, "degree": 10.0, "factor": 1.0}]
    first = {"name": "fitted", "accelerator": "cpu", "traffic": 2e10, "cached": 4e10}
    of_gpu = H200.model_dump(mode="json")
    del of_gpu["alone"]["seconds"]["fused"]
    for old in (first, with_libraries, without_length, of_gpu):
        write_json(path, old)
        with pytest.raises(InputError, match=r"old.json: .*run bigtrk plan --calibrate again"):
            find_machine(str(path))


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


def test_small_graphs_correct_no_pass_over_larger_ones() -> None:
    """Interaction GNNs of hidden 32 are measured on four graphs, two of them small."""
    slow = slowed(by_default(1), lambda case: case.edges == 1_000)
    found = fit(slow, by_default(2), CPU)
    for name, recompute in (("attention", "layer"), ("interaction", "chunk"), ("mlp", "none")):
        for hidden in (32, 64):
            asked = Case(9_000, 90_000, hidden, name, 3, recompute)
            assert ratio(asked, found) == pytest.approx(1, rel=0.1), asked


def test_long_passes_that_would_not_fit_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = [fitting.predicted_peak(case, CPU) for case in LONG]
    monkeypatch.setattr(calibration, "memory_bytes", lambda: 2 * max(peaks))
    alone, both = (calibration.those_that_fit(LONG, ranks, CPU) for ranks in (1, 2))
    assert len(alone) == len(LONG) - 1
    assert alone[0] in both
    assert {fitting.predicted_peak(case, CPU) < max(peaks) / 2 for case in both} == {True}


@pytest.mark.slow  # a quarter of a minute
def test_warm_ups_measure_ranks_of_their_own_and_their_link() -> None:
    small = Case(200, 800, 8, layers=2)
    cases = [small, replace(small, engine="fsdp2", events=2)]
    found = measure_apart(cases, ranks=2)
    assert [one.case for one in found.samples] == cases
    for one in found.samples:
        assert one.ranks == 2
        assert 0 < one.seconds < 60
        assert 50 * 2**20 < one.peak_bytes < 4 * 2**30
    assert found.link is not None
    assert found.link.latency < 0.1
    assert measure_apart([small]).link is None


def test_ranks_that_take_turns_are_compared_with_the_same_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the rates tell: the host may be slower than when these were measured."""
    seconds = {
        ("each", 2): 3.0,
        ("first", 2): 2.4,
        ("each", 4): 6.9,
        ("shared", 2): 10.0,
        ("shared", 4): 12.65,
    }

    def as_measured(cases: Sequence[Case], ranks: int) -> Measured:
        own = [seconds[case.graphs, ranks] * case.hidden * case.layers for case in cases]
        pairs = zip(cases, own, strict=True)
        return Measured([Sample(case, ranks, took, 2**29) for case, took in pairs], None)

    monkeypatch.setattr(calibration, "measure_apart", as_measured)
    assert calibration._sharing(2, crowded=True) == pytest.approx(
        {"waited_for": 0.8, "crowding": 1.15, "crowded_exchange": 1.1}
    )
    assert calibration._sharing(2, crowded=False) == pytest.approx({"waited_for": 0.8})


def test_a_calibration_knows_how_steady_its_host_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of ten cases takes half as long again in the second round."""
    cases = [Case(100 + i, 300, 16) for i in range(10)]
    rounds = iter([1.0, 1.5])

    def as_measured(cases: Sequence[Case], ranks: int) -> Measured:
        slower = next(rounds)
        took = [slower if case.nodes == 104 else 1.0 for case in cases]
        pairs = zip(cases, took, strict=True)
        return Measured([Sample(case, ranks, seconds, 2**29) for case, seconds in pairs], None)

    monkeypatch.setattr(calibration, "measure_apart", as_measured)
    found = calibration.measure_in_turns({1: cases}, "cases")
    assert found[1].again == (1.0,) * 4 + (1.5,) + (1.0,) * 5
    assert calibration.repeated(found.values()) == pytest.approx(np.quantile([0.5, *[0] * 9], 0.9))
