"""Events in the Open Data Detector: tracks leave no gap, hits lie on their modules."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from bigtrk.events.detectors import module_places, module_table
from bigtrk.events.event import Columns, Event
from bigtrk.events.geometry import ODD_LAYERS
from bigtrk.events.simulation import simulate
from bigtrk.events.simulation.simulate import Deposits, particle_deposits, simulate_event

Float64 = NDArray[np.float64]

NO_MATERIAL = replace(ODD_LAYERS, material=np.zeros(len(ODD_LAYERS)))


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets particles reach the end, and sensors miss none."""
    monkeypatch.setattr(simulate, "INEFFICIENCY", 0.0)
    monkeypatch.setattr(simulate, "STOPPED_PER_MODULE", 1e-12)


def straight(x: Float64, y: Float64, z: Float64) -> Deposits:
    """Sends a particle of 10 TeV or more from the origin through each point [P]; their deposits."""
    scale = 1e4 / np.hypot(x, y)
    zeros = np.zeros_like(x)
    particles: Columns = {"vx": zeros, "vy": zeros, "vz": zeros, "q": zeros + 1}
    particles |= {"px": x * scale, "py": y * scale, "pz": z * scale}
    return particle_deposits(particles, NO_MATERIAL, np.random.default_rng(0))


@pytest.mark.usefixtures("whole")
def test_every_module_can_be_reached() -> None:
    table = {name: column.astype(float) for name, column in module_table(ODD_LAYERS).items()}
    found = straight(table["cx"], table["cy"], table["cz"])
    reached = np.unique(np.stack([found.layer, found.row, found.column]), axis=1)
    layer, column, row = module_places(ODD_LAYERS)
    assert reached.T.tolist() == np.unique(np.stack([layer, row, column]), axis=1).T.tolist()


@pytest.mark.usefixtures("whole")
def test_straight_tracks_leave_hits_at_all_eta() -> None:
    """Thirteen and more on the mean, as ACTS's reconstruction has them, overlaps included."""
    eta = np.linspace(-3, 3, 3001)
    phi = np.random.default_rng(1).uniform(-np.pi, np.pi, len(eta))
    found = straight(np.cos(phi), np.sin(phi), np.sinh(eta))
    hits = np.bincount(found.particle, minlength=len(eta))
    central = np.abs(eta) < 2.5
    assert hits[central].min() >= 9
    assert hits.min() >= 9
    assert 13 < hits[central].mean() < 15
    layers = np.stack([ODD_LAYERS.volume_id, ODD_LAYERS.layer_id])[:, found.layer]
    for low in np.arange(0, 2.5, 0.25):
        here = (low <= np.abs(eta)) & (np.abs(eta) < low + 0.25)
        assert 12.5 < hits[here].mean() < 16
        of_here = here[found.particle]
        pairs = np.unique(np.stack([found.particle, *layers])[:, of_here], axis=1)[0]
        assert np.bincount(pairs)[here.nonzero()[0]].min() >= 8, "layers"


@pytest.fixture(scope="module")
def event() -> Event:
    return simulate_event(1500, seed=11, detector=ODD_LAYERS)


def test_hits_lie_on_their_modules_within_the_error(event: Event) -> None:
    hits, modules = of_modules(event)
    truth = floats(event.truth)
    barrel = np.abs(modules["rot_zw"]) < 0.5
    across = np.where(barrel, np.hypot(hits["x"], hits["y"]), hits["z"])
    place = np.where(barrel, np.hypot(modules["cx"], modules["cy"]), modules["cz"])
    np.testing.assert_allclose(across, place, atol=0.01)
    u, v = local(hits["x"], hits["y"], hits["z"], modules)
    tu, tv = local(truth["tx"], truth["ty"], truth["tz"], modules)
    long = modules["pitch_v"] > 20
    assert (np.abs(v)[long] <= modules["module_hv"][long]).all(), "in the middle of a strip"
    assert (np.abs(v) <= modules["module_hv"] + 6 * modules["pitch_v"]).all()
    assert (np.abs(u) <= modules["module_maxhu"] + 6 * modules["pitch_u"]).all()
    for kind in (modules["pitch_v"] < 0.1, (modules["pitch_v"] > 0.1) & ~long, long):
        assert kind.sum() > 500
        for error, pitch in ((u - tu, modules["pitch_u"]), (v - tv, modules["pitch_v"])):
            pull = error[kind] / (pitch[kind] / np.sqrt(12))
            assert 0.93 < pull.std() < 1.07
            assert np.abs(pull).max() < 6
    strip = np.abs((v - tv)[long]) / modules["pitch_v"][long]
    assert strip.max() < 0.501


def of_modules(event: Event) -> tuple[dict[str, Float64], dict[str, Float64]]:
    """The hits' columns, and those of the module of each."""
    names = ("volume_id", "layer_id", "module_id")
    table = module_table(ODD_LAYERS)
    row = {
        key: i for i, key in enumerate(zip(*(table[name].tolist() for name in names), strict=True))
    }
    rows = [row[key] for key in zip(*(event.hits[name].tolist() for name in names), strict=True)]
    return floats(event.hits), {name: column[rows].astype(float) for name, column in table.items()}


def local(x: Float64, y: Float64, z: Float64, modules: dict[str, Float64]) -> tuple[Float64, ...]:
    """Takes u along phi, at the module's radius, and v of points: [N] each."""
    turn = np.arctan2(y, x) - np.arctan2(modules["cy"], modules["cx"])
    centre = np.hypot(modules["cx"], modules["cy"])
    u = (np.mod(turn + np.pi, 2 * np.pi) - np.pi) * centre
    barrel = np.abs(modules["rot_zw"]) < 0.5
    return u, np.where(barrel, z - modules["cz"], np.hypot(x, y) - centre)


def floats(columns: Columns | None) -> dict[str, Float64]:
    assert columns is not None
    return {name: values.astype(np.float64) for name, values in columns.items()}


def test_the_beam_spot_is_as_long_as_in_colliderml(event: Event) -> None:
    assert event.particles is not None
    primary = event.particles["particle_id"].astype(np.int64) & 0xFFFFFF == 0
    z = floats(event.particles)["vz"][primary]
    assert 30 < np.unique(z).std() < 80, "55.5 mm"
    of_trackml = floats(simulate_event(1500, seed=11).particles)["vz"][primary]
    np.testing.assert_allclose(z, 55.5 / 5.5 * of_trackml, rtol=1e-4)
