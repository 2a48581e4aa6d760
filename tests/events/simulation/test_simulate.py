"""Simulated events: particles on their helices, hits on their modules, cells along their tracks."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from bigtrk.events.detectors import module_places, module_table
from bigtrk.events.event import Columns, Event
from bigtrk.events.geometry import ODD_LAYERS, TRACKML_LAYERS, DetectorLayers
from bigtrk.events.simulation import simulate
from bigtrk.events.simulation.simulate import (
    Deposits,
    fired_cells,
    measure,
    merge_deposits,
    particle_deposits,
    simulate_event,
)
from bigtrk.events.simulation.tracks import (
    cylinder_crossings,
    disc_crossings,
    helices,
    momentum,
    position,
)

Float64 = NDArray[np.float64]

C = 0.299792458  # GeV / (T m)


@pytest.fixture(scope="module")
def event() -> Event:
    return simulate_event(2000, seed=11)


@pytest.fixture(scope="module")
def in_odd() -> Event:
    return simulate_event(1500, seed=11, detector=ODD_LAYERS)


def table(columns: Columns | None) -> dict[str, Float64]:
    assert columns is not None
    return {name: values.astype(np.float64) for name, values in columns.items()}


def ids_of(columns: Columns | None) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    assert columns is not None
    return columns["particle_id"]


def one_particle(**values: float) -> Columns:
    defaults = dict.fromkeys(("vx", "vy", "vz", "py", "pz"), 0.0) | {"px": 1.0, "q": 1.0}
    return {name: np.array([value]) for name, value in (defaults | values).items()}


@pytest.mark.parametrize("charge", [-1.0, 1.0])
@pytest.mark.parametrize("vx", [0.0, 45.0])
def test_helices_solve_the_equation_of_motion(charge: float, vx: float) -> None:
    """Integrate dp/ds = 0.3 q (p/|p|) x B numerically until the helix's own end point."""
    helix = helices(one_particle(vx=vx, vz=-7.0, px=0.3, py=-0.4, pz=0.7, q=charge))
    angle = np.array([1.7])
    end = np.array([*position(helix, angle), *momentum(helix, angle)]).ravel()
    total = np.sqrt(0.3**2 + 0.4**2 + 0.7**2)
    length = 1.7 * (0.5 / (C * 2.0)) * total / 0.5  # m

    def motion(_: float, state: np.ndarray) -> np.ndarray:
        direction = state[3:] / total
        force = C * charge * np.cross(direction, [0.0, 0.0, 2.0])
        return np.concatenate([direction * 1000, force])

    start = [vx, 0.0, -7.0, 0.3, -0.4, 0.7]
    result = solve_ivp(motion, (0, length), start, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(result.y[:, -1], end, atol=1e-5)


def test_crossings_lie_on_cylinders_and_discs_and_are_the_first() -> None:
    rng = np.random.default_rng(0)
    n = 300
    particles: Columns = {name: rng.normal(size=n) * 30 for name in ("vx", "vy", "vz")}
    particles |= {name: rng.normal(size=n) * 0.5 for name in ("px", "py", "pz")}
    particles["q"] = rng.choice([-1.0, 1.0], n)
    helix = helices(particles)
    radii, planes = np.array([72.0, 260.0, 1020.0]), np.array([-700.0, 600.0])
    scan = np.linspace(0, np.pi, 4001)
    path = np.array([position(helix, np.full(n, angle))[:2] for angle in scan])
    rho = np.hypot(path[:, 0], path[:, 1])
    for column, radius in enumerate(radii):
        angle = cylinder_crossings(helix, radii)[:, column]
        crosses = ((rho[1:] > radius) != (rho[:-1] > radius)).any(axis=0)
        first = scan[((rho[1:] > radius) != (rho[:-1] > radius)).argmax(axis=0)]
        # A scan in steps can miss only a graze between two of them.
        assert (np.isfinite(angle) == crosses).mean() > 0.99
        both = np.isfinite(angle) & crosses
        assert both.sum() > 50
        np.testing.assert_allclose(angle[both], first[both], atol=2 * np.pi / 4000)
        x, y, _ = position(helix, angle)
        np.testing.assert_allclose(np.hypot(x, y)[both], radius, rtol=1e-9)
    for crossing, plane in zip(disc_crossings(helix, planes).T, planes, strict=True):
        hit = np.isfinite(crossing)
        assert hit.sum() > 20
        np.testing.assert_allclose(position(helix, crossing)[2][hit], plane, rtol=1e-9)


@pytest.mark.parametrize("layers", [TRACKML_LAYERS, ODD_LAYERS], ids=["trackml", "odd"])
def test_hits_lie_on_their_modules_within_the_error(
    layers: DetectorLayers, event: Event, in_odd: Event
) -> None:
    simulated = event if layers is TRACKML_LAYERS else in_odd
    hits, modules = table(simulated.hits), modules_of(simulated, layers)
    truth = table(simulated.truth)
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
    assert (np.abs(v - tv)[long] < 0.501 * modules["pitch_v"][long]).all()
    kinds = [modules["pitch_v"] < 0.1, (modules["pitch_v"] > 0.1) & ~long]
    for kind in kinds if layers is TRACKML_LAYERS else [*kinds, long]:
        assert kind.sum() > 500
        for error, pitch in ((u - tu, modules["pitch_u"]), (v - tv, modules["pitch_v"])):
            pull = error[kind] / (pitch[kind] / np.sqrt(12))
            assert 0.93 < pull.std() < 1.07
            assert np.abs(pull).max() < 6


def modules_of(event: Event, layers: DetectorLayers) -> dict[str, Float64]:
    """The columns of the module of each hit."""
    names = ("volume_id", "layer_id", "module_id")
    modules = module_table(layers)
    keys = zip(*(modules[name].tolist() for name in names), strict=True)
    row = {key: i for i, key in enumerate(keys)}
    rows = [row[key] for key in zip(*(event.hits[name].tolist() for name in names), strict=True)]
    return {name: column[rows].astype(float) for name, column in modules.items()}


def local(x: Float64, y: Float64, z: Float64, modules: dict[str, Float64]) -> tuple[Float64, ...]:
    """Takes u along phi, at the module's radius, and v of points: [N] each."""
    turn = np.arctan2(y, x) - np.arctan2(modules["cy"], modules["cx"])
    centre = np.hypot(modules["cx"], modules["cy"])
    u = (np.mod(turn + np.pi, 2 * np.pi) - np.pi) * centre
    barrel = np.abs(modules["rot_zw"]) < 0.5
    return u, np.where(barrel, z - modules["cz"], np.hypot(x, y) - centre)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets particles reach the end, and sensors miss none."""
    monkeypatch.setattr(simulate, "INEFFICIENCY", 0.0)
    monkeypatch.setattr(simulate, "ODD_INEFFICIENCY", 0.0)
    monkeypatch.setattr(simulate, "STOPPED_PER_MODULE", 1e-12)


def straight(x: Float64, y: Float64, z: Float64) -> Deposits:
    """Sends a particle of 10 TeV or more from the origin through each point [P]; their deposits."""
    scale = 1e4 / np.hypot(x, y)
    zeros = np.zeros_like(x)
    particles: Columns = {"vx": zeros, "vy": zeros, "vz": zeros, "q": zeros + 1}
    particles |= {"px": x * scale, "py": y * scale, "pz": z * scale}
    no_material = replace(ODD_LAYERS, material=np.zeros(len(ODD_LAYERS)))
    return particle_deposits(particles, no_material, np.random.default_rng(0))


@pytest.mark.usefixtures("whole")
def test_every_module_can_be_reached() -> None:
    modules = table(module_table(ODD_LAYERS))
    found = straight(modules["cx"], modules["cy"], modules["cz"])
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
    assert hits.min() >= 9
    layers = np.stack([ODD_LAYERS.volume_id, ODD_LAYERS.layer_id])[:, found.layer]
    crossed = np.unique(np.stack([found.particle, *layers]), axis=1)[0]
    assert np.bincount(crossed)[np.abs(eta) < 2.5].min() >= 8
    for low in np.arange(0, 2.5, 0.25):
        here = (low <= np.abs(eta)) & (np.abs(eta) < low + 0.25)
        assert 12.5 < hits[here].mean() < 16


def test_the_beam_spot_is_as_long_as_in_colliderml(in_odd: Event) -> None:
    primary = ids_of(in_odd.particles).astype(np.int64) & 0xFFFFFF == 0
    z = table(in_odd.particles)["vz"][primary]
    assert 30 < np.unique(z).std() < 80, "55.5 mm"
    of_trackml = table(simulate_event(1500, seed=11).particles)["vz"][primary]
    np.testing.assert_allclose(z, 55.5 / 5.5 * of_trackml, rtol=1e-4)


def test_event_has_the_make_up_of_trackml(event: Event) -> None:
    hits, particles = table(event.hits), table(event.particles)
    noise = ids_of(event.truth) == 0
    assert 0.15 < noise.mean() < 0.20
    assert 8 < len(noise) / 2000 < 12
    pt = np.hypot(particles["px"], particles["py"])
    assert pt.min() > 0.0999
    assert 0.3 < np.median(pt) < 0.8
    assert np.abs(np.arcsinh(particles["pz"] / pt)).max() <= 4.001
    far = np.hypot(particles["vx"], particles["vy"]) > 1
    assert 0.1 < far.mean() < 0.3
    assert 4.5 < particles["vz"][~far].std() < 7
    keys = np.stack([ids_of(event.truth), hits["volume_id"], hits["layer_id"]])[:, ~noise]
    counts = np.unique(keys, axis=1, return_counts=True)[1]
    assert 0.1 < (counts > 1).mean() < 0.3


def test_truth_counts_and_weights(event: Event) -> None:
    truth, particles = table(event.truth), table(event.particles)
    counts = [(ids_of(event.truth) == particle).sum() for particle in ids_of(event.particles)[:200]]
    assert counts == particles["nhits"][:200].tolist()
    assert truth["weight"].sum() == pytest.approx(1, abs=1e-6)
    owner = np.searchsorted(ids_of(event.particles), ids_of(event.truth)) % 2000
    weighted = (ids_of(event.truth) != 0) & (particles["nhits"][owner] >= 4)
    np.testing.assert_array_equal(truth["weight"] > 0, weighted)


def test_cells_fit_their_modules_and_their_tracks(event: Event) -> None:
    cells, hits, layers = table(event.cells), table(event.hits), TRACKML_LAYERS
    assert set(cells["hit_id"]) == set(hits["hit_id"])
    keys = np.stack([cells[name] for name in ("hit_id", "ch0", "ch1")])
    assert np.unique(keys, axis=1).shape == keys.shape
    row = np.searchsorted(
        layers.volume_id * 100 + layers.layer_id, hits["volume_id"] * 100 + hits["layer_id"]
    )[cells["hit_id"].astype(int) - 1]
    assert min(cells["ch0"].min(), cells["ch1"].min()) >= 0
    assert (cells["ch1"] <= layers.row_length[row] / layers.pitch_v[row]).all()
    assert set(cells["value"][layers.pitch_v[row] > 1]) == {1.0}
    # In the inner barrel layer a track at |z| = 400 mm passes tan = z / r times as many cells.
    count = np.bincount(cells["hit_id"].astype(int), minlength=len(hits["x"]) + 1)[1:]
    inner = (hits["volume_id"] == 8) & (hits["layer_id"] == 2) & (ids_of(event.truth) != 0)
    steep = count[inner & (np.abs(hits["z"]) > 350)].mean()
    assert steep > 3 * count[inner & (np.abs(hits["z"]) < 60)].mean()


def test_deposits_of_one_cell_become_one_hit() -> None:
    """The hit is the larger deposit's particle's, measured between both, with both's charge."""
    same, elsewhere = [1.0, 3.0], 2.0
    zeros, layer, place = np.zeros(3), np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)
    u, v = np.array([0.01, 2.0, 0.03]), np.array([0.02, 0.02, 0.02])
    charge = np.array([same[0], elsewhere, same[1]])
    barrel = int(np.flatnonzero(TRACKML_LAYERS.volume_id == 8)[0])
    deposits = Deposits(
        np.arange(3), layer + barrel, place, place, u, v, zeros, zeros, charge, zeros, zeros, zeros
    )
    hit, lead = merge_deposits(deposits, TRACKML_LAYERS)
    assert hit[0] == hit[2] != hit[1]
    assert lead[hit].tolist() == [2, 1, 2]
    sharp = replace(TRACKML_LAYERS, pitch_u=TRACKML_LAYERS.pitch_u * 1e-9)
    measured_u, _ = measure(deposits, hit, sharp, np.random.default_rng(0))
    np.testing.assert_allclose(measured_u[hit], [0.025, 2.0, 0.025], atol=1e-9)
    cells = fired_cells(deposits, hit, TRACKML_LAYERS)
    assert sorted(cells["value"].astype(float)) == pytest.approx([2.0, 4.0])


def test_same_seed_and_event_give_the_same_event_and_others_do_not() -> None:
    first, again = (simulate_event(50, seed=1, event_id=2) for _ in range(2))
    assert first.name == "event000000002"
    for name in ("hits", "cells", "particles", "truth"):
        left, right = getattr(first, name), getattr(again, name)
        assert left.keys() == right.keys()
        for column in left:
            np.testing.assert_array_equal(left[column], right[column], strict=True)
    for other in (simulate_event(50, seed=2, event_id=2), simulate_event(50, seed=1, event_id=3)):
        assert not np.array_equal(ids_of(other.truth), ids_of(first.truth))
