"""Particles in material: each step against formulas, and against the way without material."""

from dataclasses import replace

import numpy as np
import pytest

from bigtrk.events.geometry import TRACKML_LAYERS, DetectorLayers, layers_from_rows
from bigtrk.events.simulation.simulate import generate_particles
from bigtrk.events.simulation.tracks import (
    PION_MASS,
    RADIATION_MASS,
    Crossings,
    Helices,
    continued,
    energy_loss,
    helices,
    momentum,
    position,
    propagate,
    scattering_angle,
    slowed,
)

EMPTY = replace(TRACKML_LAYERS, material=np.zeros(len(TRACKML_LAYERS)))
THICKNESS = 0.05


def discs(*material: float) -> DetectorLayers:
    """Discs of large modules at z = 100, 200, ... mm, with their material."""
    sizes = (0.0, 1e4, 2, 1, 0.0, 0.3, 0.05, 0.05)
    return layers_from_rows(
        [(1, 2 + 2 * i, False, 100.0 * (i + 1), *sizes, x) for i, x in enumerate(material)]
    )


def beam(n: int, px: float, pz: float) -> Helices:
    rows = {"px": px, "pz": pz, "q": 1.0} | dict.fromkeys(("vx", "vy", "vz", "py"), 0.0)
    return helices({name: np.full(n, value) for name, value in rows.items()})


def on_disc(crossings: Crossings, layer: int) -> Crossings:
    """The crossings of the even side of a layer, in order of their particles."""
    here = crossings.take((crossings.layer == layer) & (crossings.side == 0))
    return here.take(np.argsort(here.particle))


def test_a_helix_is_deflected_by_the_angles_given() -> None:
    """Is deflected in the planes of the direction with the azimuth's increase and with the beam."""
    rng = np.random.default_rng(2)
    helix = helices(generate_particles(500, rng))
    angle = rng.uniform(0, 3, 500)
    across, along = rng.uniform(-0.3, 0.3, (2, 500))
    after = continued(helix, angle, across, along, np.full(500, 0.7))
    before = np.array(momentum(helix, angle))
    direction = before / np.linalg.norm(before, axis=0)
    azimuth = np.cross([0, 0, 1], direction.T).T
    azimuth /= np.linalg.norm(azimuth, axis=0)
    upwards = np.cross(direction.T, azimuth.T).T  # to +z, at right angles to both
    turned = np.array(momentum(after, np.zeros(500)))
    np.testing.assert_allclose(np.linalg.norm(turned, axis=0), 0.7)
    forward = (turned * direction).sum(axis=0)
    np.testing.assert_allclose(np.arctan2((turned * azimuth).sum(axis=0), forward), across)
    np.testing.assert_allclose(np.arctan2((turned * upwards).sum(axis=0), forward), along)


def test_without_material_all_is_on_the_helix_of_the_vertex() -> None:
    """Compares them to the last bit."""
    rng = np.random.default_rng(3)
    helix = helices(generate_particles(500, rng))
    met = propagate(helix, EMPTY, rng)
    track = helix.take(met.particle)
    assert len(met.particle) > 3000
    np.testing.assert_array_equal((met.x, met.y, met.z), position(track, met.angle))
    np.testing.assert_array_equal((met.px, met.py, met.pz), momentum(track, met.angle))


def test_deflections_are_as_wide_as_the_formula_says() -> None:
    """Many pions of 1 GeV, at 30 degrees to the beam, through one thick disc."""
    n, px, pz = 20_000, 0.5, np.sqrt(0.75)
    before, after = (
        on_disc(propagate(beam(n, px, pz), discs(x, 0.0), np.random.default_rng(4)), 1)
        for x in (0.0, THICKNESS)
    )
    thickness = np.array([THICKNESS / pz])  # at this angle, 1 / cos of it
    width = scattering_angle(np.ones(1), thickness)[0]
    polar = [np.arctan2(np.hypot(c.px, c.py), c.pz) for c in (before, after)]
    azimuth = [np.arctan2(c.py, c.px) for c in (before, after)]
    for deflection in (polar[1] - polar[0], (azimuth[1] - azimuth[0]) * px):
        assert abs(deflection.mean()) < 4 * width / np.sqrt(n)
        assert deflection.std() == pytest.approx(width, rel=0.03)


@pytest.mark.parametrize("total", [0.15, 10.0])
def test_each_layer_takes_its_mean_energy(total: float) -> None:
    px, pz = 0.2 * total, np.sqrt(0.96) * total
    met = propagate(beam(50, px, pz), discs(0.02, 0.0), np.random.default_rng(5))
    discs_met = (on_disc(met, layer) for layer in (0, 1))
    energy = [np.sqrt(c.px**2 + c.py**2 + c.pz**2 + PION_MASS**2) for c in discs_met]
    expected = energy_loss(np.array([total]), np.array([0.02 / np.sqrt(0.96)]))
    np.testing.assert_allclose(energy[0] - energy[1], expected[0], rtol=1e-9)


def test_crossings_with_material_lie_on_their_surfaces_in_order() -> None:
    """No particle gains momentum on its way."""
    rng = np.random.default_rng(8)
    met = propagate(helices(generate_particles(500, rng)), TRACKML_LAYERS, rng)
    barrel = TRACKML_LAYERS.is_barrel[met.layer]
    across = np.where(barrel, np.hypot(met.x, met.y), met.z)
    np.testing.assert_allclose(across, TRACKML_LAYERS.surface(met.layer, met.side), atol=1e-6)
    order = np.lexsort((met.angle, met.particle))
    same = np.diff(met.particle[order]) == 0
    total = np.sqrt(met.px**2 + met.py**2 + met.pz**2)[order]
    gain = np.diff(total)[same] / total[1:][same]
    assert gain.max() < 1e-9
    assert (gain < -1e-5).mean() > 0.2
    without = propagate(helices(generate_particles(500, np.random.default_rng(8))), EMPTY, rng)
    assert len(met.particle) == pytest.approx(len(without.particle), rel=0.03)


def test_scattering_and_loss_are_those_of_the_formulas() -> None:
    """1 GeV has beta 0.99040: 13.6 / 990.4 * sqrt(0.02) * (1 + 0.038 ln(0.02 / 0.98089)). Groom,
    Mokhov and Striganov, Atomic Data and Nuclear Data Tables 78 (2001): 6.363 MeV cm^2/g at the
    velocity of muons of 10 MeV, where there is no density effect yet, 1.664 at the least.
    """
    angle = scattering_angle(np.array([1.0, 1.0]), np.array([0.02, 0.08]))
    assert angle[0] == pytest.approx(1.6547e-3, rel=1e-4)
    assert angle[1] / angle[0] == pytest.approx(2 * 0.90477 / 0.85209, rel=1e-4)
    momentum = PION_MASS * np.array([0.4452, *np.geomspace(0.5, 100, 400)])
    per_mass = energy_loss(momentum, np.ones(401)) / RADIATION_MASS
    assert per_mass[0] == pytest.approx(6.363e-3, rel=0.01)
    assert 1.664e-3 < per_mass.min() < 1.03 * 1.664e-3
    assert np.isnan(slowed(np.array([0.05]), np.array([0.5]))), "it stops"
