"""Fits of helices to many groups of hits at once: a circle in the transverse plane, a straight line
of z against the arc length along it.

The circle is a (x² + y²) + b x + c y + d = 0 with b² + c² - 4 a d = 1, which has no special case
for straight tracks (a = 0). It is Karimäki's explicit fit (Nucl. Instrum. Meth. A 305 (1991) 187,
doi:10.1016/0168-9002(91)90533-V) about the mean of each group's hits, where it loses no digits.

Shapes: C groups, R rows, which are the hits of one group after another.
"""

from dataclasses import dataclass

import numpy as np

from bigtrk.tracks.builders.trees.constraints import Values
from bigtrk.tracks.builders.trees.hit_groups import HitGroups

# Below this share of its square the variance of the squared distances from the mean is rounding:
# two hits lie equally far from it, and a straight line through them is what is known.
SMALLEST_VARIANCE = 1e-18
SMALLEST_SPREAD = 1e-6  # mm: hits whose arcs differ by less have no slope
TINY = 1e-300

Points = tuple[Values, Values]


@dataclass(frozen=True)
class HelixFits:
    """The helices of groups; each field is [C] float64.

    circle_residual, line_residual (mm): root mean squares of the distances of hits from the circle,
    and in z from the line. d0 (mm): distance of the circle from the beam line (x = y = 0), where
    the arc length begins; z0 (mm): z there. curvature (1/mm): 1 / radius. slope: dz by arc length,
    which grows towards the mean of the hits.
    """

    circle_residual: Values
    line_residual: Values
    d0: Values
    z0: Values
    curvature: Values
    slope: Values


@dataclass(frozen=True)
class _Circles:
    """Circles in coordinates about the mean of each group; each field is [C]."""

    a: Values
    b: Values
    c: Values
    d: Values


def fit_helices(groups: HitGroups, position: Values) -> HelixFits:
    """Fits a helix to each group: position [N, 3] (x, y, z in mm).

    All values are finite, whatever the hits. Those that lie along the beam line have slope 0.
    """
    x, y, z = (np.take(column, groups.hit) for column in position.T)
    mean_x, mean_y = groups.means(x), groups.means(y)
    u, v = x - groups.spread(mean_x), y - groups.spread(mean_y)
    circles = _fit_circles(groups, u, v)
    a, b, c, d = (groups.spread(values) for values in vars(circles).values())
    distance = _distance(a, a * (u * u + v * v) + b * u + c * v + d)
    d0, perigee, direction = _perigees(circles, -mean_x, -mean_y)
    arc = _arcs(groups, circles, u, v, perigee, direction)
    z0, slope, rest = _fit_lines(groups, arc, z)
    return HelixFits(
        circle_residual=np.sqrt(groups.means(distance**2)),
        line_residual=np.sqrt(groups.means(rest**2)),
        d0=np.abs(d0),
        z0=z0,
        curvature=2 * np.abs(circles.a),
        slope=slope,
    )


def _fit_circles(groups: HitGroups, u: Values, v: Values) -> _Circles:
    """Fits circles to points u, v [R] about their means: minimises the mean square of
    k (u² + v²) + b u + c v + d with b² + c² = 1.
    """
    square = u * u + v * v
    w = groups.centred(square)
    mean_square = groups.means(square)
    uu, vv, uv, uw, vw, ww = (
        groups.means(product) for product in (u * u, v * v, u * v, u * w, v * w, w * w)
    )
    bent = ww > SMALLEST_VARIANCE * mean_square**2
    per_variance = np.divide(1, ww, out=np.zeros_like(ww), where=bent)
    angle = np.arctan2(
        2 * (uv - per_variance * uw * vw), uu - vv - per_variance * (uw * uw - vw * vw)
    )
    b, c = -np.sin(angle / 2), np.cos(angle / 2)
    k = -per_variance * (b * uw + c * vw)
    norm = np.sqrt(1 + 4 * k * k * mean_square)
    return _Circles(k / norm, b / norm, c / norm, -k * mean_square / norm)


def _distance(a: Values, value: Values) -> Values:
    """Returns the signed distance of points from circles of which the equations have this value."""
    signed: Values = 2 * value / (1 + np.sqrt(np.maximum(1 + 4 * a * value, 0)))
    return signed


def _perigees(circles: _Circles, x: Values, y: Values) -> tuple[Values, Points, Points]:
    """Returns the signed distance of each circle from its point x, y, the point of the circle
    nearest to it, and the unit vector along the circle there, towards the mean: [C] each.
    """
    distance = _distance(
        circles.a, circles.a * (x * x + y * y) + circles.b * x + circles.c * y + circles.d
    )
    away_x, away_y = circles.b + 2 * circles.a * x, circles.c + 2 * circles.a * y
    length = np.maximum(np.hypot(away_x, away_y), TINY)
    away_x, away_y = away_x / length, away_y / length
    near_x, near_y = x - distance * away_x, y - distance * away_y
    sign = np.where(near_x * away_y - near_y * away_x < 0, -1.0, 1.0)
    return distance, (near_x, near_y), (-sign * away_y, sign * away_x)


def _arcs(
    groups: HitGroups, circles: _Circles, u: Values, v: Values, perigee: Points, direction: Points
) -> Values:
    """Returns the arc lengths from the perigee to the points, negative against the direction: [R].

    They are those of the chords, so within half a turn.
    """
    du, dv = u - groups.spread(perigee[0]), v - groups.spread(perigee[1])
    chord = np.hypot(du, dv)
    sine = np.minimum(groups.spread(np.abs(circles.a)) * chord, 1)
    stretch = np.divide(np.arcsin(sine), sine, out=np.ones_like(sine), where=sine > 0)
    ahead = du * groups.spread(direction[0]) + dv * groups.spread(direction[1])
    arc: Values = np.copysign(chord * stretch, ahead)
    return arc


def _fit_lines(groups: HitGroups, arc: Values, z: Values) -> tuple[Values, Values, Values]:
    """Fits z = z0 + slope arc: z0 [C], slope [C], and the residuals [R]."""
    mean_arc, mean_z = groups.means(arc), groups.means(z)
    from_mean, rise = arc - groups.spread(mean_arc), z - groups.spread(mean_z)
    variance = groups.means(from_mean**2)
    slope = np.divide(
        groups.means(from_mean * rise),
        variance,
        out=np.zeros_like(variance),
        where=variance > SMALLEST_SPREAD**2,
    )
    return mean_z - slope * mean_arc, slope, rise - groups.spread(slope) * from_mean
