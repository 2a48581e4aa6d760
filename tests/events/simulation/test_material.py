"""Formulas of the material against the review's own numbers, by hand."""

import numpy as np
import pytest

from bigtrk.events.simulation.tracks import (
    PION_MASS,
    RADIATION_MASS,
    energy_loss,
    scattering_angle,
    slowed,
)


def test_scattering_angle_by_hand() -> None:
    """1 GeV has beta 0.99040: 13.6 / 990.4 * sqrt(0.02) * (1 + 0.038 ln(0.02 / 0.98089))."""
    angle = scattering_angle(np.array([1.0, 1.0, 0.2]), np.array([0.02, 0.08, 0.02]))
    assert angle[0] == pytest.approx(1.6547e-3, rel=1e-4)
    assert angle[1] / angle[0] == pytest.approx(2 * 0.90477 / 0.85209, rel=1e-4)
    assert angle[2] > 5 * angle[0]  # 1 / (beta p)


def test_energy_loss_is_that_of_silicon() -> None:
    """Groom, Mokhov and Striganov, Atomic Data and Nuclear Data Tables 78 (2001): 6.363 MeV cm^2/g
    at the velocity of muons of 10 MeV, where there is no density effect yet, 1.664 at the least.
    """
    momentum = PION_MASS * np.array([0.4452, *np.geomspace(0.5, 100, 400)])
    per_mass = energy_loss(momentum, np.ones(401)) / RADIATION_MASS
    assert per_mass[0] == pytest.approx(6.363e-3, rel=0.01)
    assert 1.664e-3 < per_mass.min() < 1.03 * 1.664e-3
    assert 2.5 < momentum[per_mass.argmin()] / PION_MASS < 3.6


def test_what_is_lost_is_gone_and_all_of_it_stops() -> None:
    momentum = np.array([0.05, 0.2, 5.0])
    after = slowed(momentum, np.full(3, 0.5))
    assert np.isnan(after[0])
    lost = np.hypot(momentum, PION_MASS) - np.hypot(after, PION_MASS)
    np.testing.assert_allclose(lost[1:], energy_loss(momentum, np.full(3, 0.5))[1:], rtol=1e-12)
    np.testing.assert_allclose(slowed(momentum, np.zeros(3)), momentum, rtol=1e-12)
