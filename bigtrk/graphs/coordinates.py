"""Hits in cylindrical coordinates, and what a pair of hits says about the track through them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Columns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Keeps eta finite for a hit on the beam line.
R_MIN = 1e-6  # mm


def cylindrical(x: Floats, y: Floats, z: Floats) -> dict[str, Floats]:
    """Returns the columns r (mm), phi (rad), z (mm) and eta of points x, y, z [N] (mm)."""
    return with_eta(np.hypot(x, y), np.arctan2(y, x), z)


def with_eta(r: Floats, phi: Floats, z: Floats) -> dict[str, Floats]:
    """Returns the columns r, phi, z and eta of points r, phi, z [N] (mm, rad)."""
    return {"r": r, "phi": phi, "z": z, "eta": eta_of(r, z)}


def eta_of(r: Floats, z: Floats) -> Floats:
    """Returns eta of points r, z [N] (mm)."""
    return np.arcsinh(z / np.maximum(r, R_MIN))


def hit_coordinates(hits: Columns) -> dict[str, Floats]:
    """Returns the columns r, phi, z and eta of `hits` [N]."""
    x, y, z = (hits[axis].astype(np.float64) for axis in "xyz")
    return cylindrical(x, y, z)


def wrapped(angle: Floats) -> Floats:
    """Wraps a difference of two angles in [-pi, pi] into [-pi, pi]."""
    return np.where(
        angle > np.pi, angle - 2 * np.pi, np.where(angle < -np.pi, angle + 2 * np.pi, angle)
    )


def doublet_columns(nodes: Mapping[str, Floats], pairs: Ints) -> dict[str, Floats]:
    """Returns the columns that windows cut on, for hit pairs [2, K], each [K].

    dr (mm), dphi (rad), phi_slope = dphi / dr (rad/mm), deta, and z0 (mm), where the straight
    line through both hits in (r, z) meets the beam line. dr = 0 gives infinities and NaN.
    """
    inner, outer = pairs
    dr = nodes["r"][outer] - nodes["r"][inner]
    dphi = wrapped(nodes["phi"][outer] - nodes["phi"][inner])
    with np.errstate(divide="ignore", invalid="ignore"):
        z0 = nodes["z"][inner] - nodes["r"][inner] * (nodes["z"][outer] - nodes["z"][inner]) / dr
        phi_slope = dphi / dr
    deta = nodes["eta"][outer] - nodes["eta"][inner]
    return {"dr": dr, "dphi": dphi, "phi_slope": phi_slope, "z0": z0, "deta": deta}
