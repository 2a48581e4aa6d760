"""Tests fits of helices: exact ones, noisy ones against other fits, and hits that lie on none."""

import numpy as np
import pytest
from numpy.typing import NDArray

from bigtrk.tracks.builders.candidates import HelixFits, HitGroups, fit_helices

Values = NDArray[np.float64]


def helix(arc: Values, phi: float, d0: float, z0: float, curvature: float, slope: float) -> Values:
    """Returns points [K, 3] at these arc lengths from the point nearest to the beam line, where the
    helix is at distance d0 (signed) from it and goes in direction phi.
    """
    turned = phi + curvature * arc
    if curvature:
        x = (np.sin(turned) - np.sin(phi)) / curvature
        y = (np.cos(phi) - np.cos(turned)) / curvature
    else:
        x, y = arc * np.cos(phi), arc * np.sin(phi)
    return np.stack([x - d0 * np.sin(phi), y + d0 * np.cos(phi), z0 + slope * arc], axis=1)


def fit(*tracks: Values) -> HelixFits:
    """Fits all at once, as rows of one table of hits in another order."""
    position = np.concatenate(tracks)
    place = np.random.default_rng(0).permutation(len(position))
    shuffled = np.empty_like(position)
    shuffled[place] = position
    return fit_helices(HitGroups(place, np.array([len(track) for track in tracks])), shuffled)


@pytest.mark.parametrize("radius", [150.0, 1e3, 2e4, 1e7, np.inf])
def test_exact_helices_are_found(radius: float) -> None:
    rng = np.random.default_rng(5)
    n = 100
    phi, slope = rng.uniform(-np.pi, np.pi, n), rng.normal(0, 2, n)
    d0, z0 = rng.normal(0, 3, n), rng.normal(0, 50, n)
    curvature = rng.choice([-1.0, 1.0], n) / radius
    end = min(2.5 * radius, 1000)
    tracks = [
        helix(np.linspace(30, end, rng.integers(3, 14)) + rng.uniform(-5, 5), *values)
        for values in np.stack([phi, d0, z0, curvature, slope], axis=1)
    ]
    found = fit(*tracks)
    np.testing.assert_allclose(found.circle_residual, 0, atol=1e-8)
    np.testing.assert_allclose(found.line_residual, 0, atol=1e-8)
    np.testing.assert_allclose(found.d0, np.abs(d0), atol=1e-4)
    np.testing.assert_allclose(found.z0, z0, atol=1e-4)
    np.testing.assert_allclose(found.curvature, 1 / radius, atol=1e-8)
    np.testing.assert_allclose(found.slope, slope, atol=1e-6)


@pytest.mark.parametrize(
    "hits",
    [
        np.zeros((5, 3)),
        np.full((3, 3), 700.0),
        [[5.0, 5, 0], [5, 5, 9], [5, 5, 80]],
        [[1.0, 0, 0], [-1, 0, 0], [0, 1, 5], [0, -1, 5]],
        [[1.0, 1, 0], [-1, 1, 3], [-1, -1, 0], [1, -1, 3]],
        [[0.0, 0, 0], [1e-9, 0, 1], [0, 1e-9, 2]],
    ],
    ids=["origin", "point", "along z", "cross", "square", "tiny"],
)
def test_hits_on_no_helix_have_finite_fits(hits: Values) -> None:
    found = fit(np.array(hits))
    assert all(np.isfinite(values).all() for values in vars(found).values())
