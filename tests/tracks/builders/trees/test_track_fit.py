"""Tests fits of helices: exact ones, noisy ones against other fits, and hits that lie on none."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import least_squares

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


def test_noisy_circles_are_those_of_least_distances() -> None:
    rng = np.random.default_rng(6)
    arc = np.array([32.0, 72, 116, 172, 260, 360, 500, 660])
    tracks = []
    for curvature in 1 / rng.uniform(800, 5000, 30):
        exact = helix(arc, 1.0, 0.5, 3.0, curvature, 0.7)
        tracks.append(exact + rng.normal(0, 0.1, exact.shape) * [1, 1, 0])
    found = fit(*tracks)
    for row, track in enumerate(tracks):
        best = closest_circle(track)
        assert found.circle_residual[row] == pytest.approx(best["residual"], rel=1e-3)
        assert found.d0[row] == pytest.approx(best["d0"], abs=2e-3)
        assert found.curvature[row] == pytest.approx(best["curvature"], rel=1e-2)


def closest_circle(track: Values) -> dict[str, float]:
    """Finds the circle of the smallest mean square distance by iteration."""

    def distances(circle: Values) -> Values:
        rest: Values = np.hypot(*(track[:, :2] - circle[:2]).T) - circle[2]
        return rest

    start = [-np.sin(1.0) * 2000, np.cos(1.0) * 2000, 2000.0]
    solved = least_squares(
        distances, start, x_scale=np.abs(start), xtol=1e-14, ftol=1e-14, gtol=1e-14
    )
    x, y, radius = solved.x
    return {
        "residual": float(np.sqrt(np.mean(distances(solved.x) ** 2))),
        "d0": abs(np.hypot(x, y) - radius),
        "curvature": 1 / radius,
    }


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
