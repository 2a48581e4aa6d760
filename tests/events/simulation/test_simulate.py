from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.events.geometry import TRACKML_LAYERS
from bigtrk.events.simulation.simulate import (
    Deposits,
    fired_cells,
    measure,
    merge_deposits,
    simulate_event,
)
from bigtrk.events.simulation.tracks import (
    cylinder_crossings,
    disc_crossings,
    helices,
    momentum,
    position,
)

# Whose tracks are the helices of their particles.
NO_MATERIAL = replace(TRACKML_LAYERS, material=np.zeros(len(TRACKML_LAYERS)))
C = 0.299792458  # GeV / (T m)


@pytest.fixture(scope="module")
def event() -> Event:
    return simulate_event(2000, seed=11)


def table(columns: Columns | None) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
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
    crossings = disc_crossings(helix, planes)
    for column, plane in enumerate(planes):
        hit = np.isfinite(crossings[:, column])
        assert hit.sum() > 20
        z = position(helix, crossings[:, column])[2]
        np.testing.assert_allclose(z[hit], plane, rtol=1e-9)


def test_hits_lie_on_their_layers_within_the_error(event: Event) -> None:
    hits, truth, layers = table(event.hits), table(event.truth), TRACKML_LAYERS
    row = np.searchsorted(
        layers.volume_id * 100 + layers.layer_id, hits["volume_id"] * 100 + hits["layer_id"]
    )
    barrel = layers.is_barrel[row]
    radius, true_radius = np.hypot(hits["x"], hits["y"]), np.hypot(truth["tx"], truth["ty"])
    across = np.where(barrel, radius, hits["z"])
    np.testing.assert_allclose(np.abs(across - layers.position[row]), layers.gap[row], atol=0.01)
    along = np.where(barrel, hits["z"] - truth["tz"], radius - true_radius)
    turn = np.arctan2(hits["y"], hits["x"]) - np.arctan2(truth["ty"], truth["tx"])
    module_row = np.floor((true_radius - layers.low[row]) / layers.row_length[row] + 1e-4)
    arc_radius = np.where(barrel, radius, layers.row_centre(row, module_row.astype(np.int64)))
    sideways = (np.mod(turn + np.pi, 2 * np.pi) - np.pi) * arc_radius
    for error, pitch in ((along, layers.pitch_v[row]), (sideways, layers.pitch_u[row])):
        pull = error / (pitch / np.sqrt(12))
        assert 0.95 < pull.std() < 1.05
        assert np.abs(pull).max() < 6


def test_true_hits_lie_on_the_helix_of_their_particle_without_material() -> None:
    event = simulate_event(2000, seed=11, detector=NO_MATERIAL)
    truth, particles = table(event.truth), table(event.particles)
    signal = ids_of(event.truth) != 0
    owner = np.searchsorted(ids_of(event.particles), ids_of(event.truth)[signal])
    helix = helices(dict(particles))
    x, y, z = (truth[name][signal] for name in ("tx", "ty", "tz"))
    distance = np.hypot(x - helix.centre_x[owner], y - helix.centre_y[owner])
    np.testing.assert_allclose(distance, helix.radius[owner], atol=0.02)
    pt = np.hypot(truth["tpx"], truth["tpy"])[signal]
    np.testing.assert_allclose(pt, helix.pt[owner], rtol=1e-5)
    chord = np.hypot(x - helix.vx[owner], y - helix.vy[owner])
    arc = 2 * helix.radius[owner] * np.arcsin(np.minimum(chord / 2 / helix.radius[owner], 1))
    near_half_turn = chord > 1.99 * helix.radius[owner]
    slope = helix.cot_theta[owner]
    off = np.abs(z - helix.vz[owner] - arc * slope) / (1 + np.abs(slope))
    assert off[~near_half_turn].max() < 0.1


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


@pytest.mark.parametrize(("particles", "seed", "event_id"), [(0, 1, 1), (5, -1, 1), (5, 1, -1)])
def test_impossible_requests(particles: int, seed: int, event_id: int) -> None:
    with pytest.raises(InputError, match="give at least 1 particle and no negative numbers"):
        simulate_event(particles, seed, event_id)
