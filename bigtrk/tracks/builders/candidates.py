"""Track candidates: the unions of a tree of hits, and features from which their quality is learnt.

Shapes: N hits, M unions, C candidates, R rows, which are the hits of one candidate after another, F
features.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import NOISE
from bigtrk.tracks.builders.hit_tree import LOWEST_SCORE, HitTree, Ids, Values


def ranges(first: Ids, size: Ids) -> Ids:
    """Concatenates C integer ranges, range c being first[c], first[c] + 1, ...: [C], [C] -> [R]."""
    begin = np.cumsum(size) - size
    return np.repeat(first - begin, size) + np.arange(size.sum())


@dataclass(frozen=True)
class HitGroups:
    """C groups of at least one hit each, one after another: hit [R], size [C]; R sums the sizes."""

    hit: Ids
    size: Ids

    @cached_property
    def begin(self) -> Ids:
        """Returns each group's first row [C]."""
        return np.cumsum(self.size) - self.size

    def means(self, values: Values) -> Values:
        """Averages values over the rows of each group: [R] -> [C]."""
        return np.add.reduceat(values, self.begin) / self.size

    def spread(self, values: Values) -> Values:
        """Repeats each group's value on its rows: [C] -> [R]."""
        return np.repeat(values, self.size)

    def centred(self, values: Values) -> Values:
        """Subtracts from each row the mean of its group: [R] -> [R]."""
        return values - self.spread(self.means(values))


# The variance of the hits' squared distances from their mean is rounding below this share of the
# mean squared, as for two hits, equally far from their mean: a straight line is fitted.
SMALLEST_VARIANCE = 1e-18
SMALLEST_SPREAD = 1e-6  # mm: hits whose arcs differ by less have no slope
TINY = 1e-300

Points = tuple[Values, Values]


@dataclass(frozen=True)
class HelixFits:
    """Helices fitted to C groups of hits; each field is [C] float64.

    circle_residual, line_residual (mm): root mean squares of the hits' distances from the circle,
    and, in z, from the line; circle_largest, line_largest (mm): the largest of these distances. d0
    (mm): distance of the circle from the beam line (x = y = 0); the arc length starts at the
    closest point, and z0 (mm) is z there. curvature (1/mm): 1 / radius. slope: dz per arc length,
    which grows towards the mean of the hits.
    """

    circle_residual: Values
    line_residual: Values
    circle_largest: Values
    line_largest: Values
    d0: Values
    z0: Values
    curvature: Values
    slope: Values


# a, b, c and d [C] of circles a (u² + v²) + b u + c v + d = 0 about the mean of each group.
_Circles = tuple[Values, Values, Values, Values]


def fit_helices(groups: HitGroups, position: Values) -> HelixFits:
    """Fits a helix to each group: position [N, 3] (x, y, z in mm).

    All results are finite, whatever the hits. If hits lie along the beam line, the slope is 0.
    """
    x, y, z = (np.take(column, groups.hit) for column in position.T)
    mean_x, mean_y = groups.means(x), groups.means(y)
    u, v = x - groups.spread(mean_x), y - groups.spread(mean_y)
    circles = _fit_circles(groups, u, v)
    a, b, c, d = (groups.spread(values) for values in circles)
    distance = _distance(a, a * (u * u + v * v) + b * u + c * v + d)
    d0, perigee, direction = _perigees(circles, -mean_x, -mean_y)
    arc = _arcs(groups, circles, u, v, perigee, direction)
    z0, slope, rest = _fit_lines(groups, arc, z)
    return HelixFits(
        circle_residual=np.sqrt(groups.means(distance**2)),
        line_residual=np.sqrt(groups.means(rest**2)),
        circle_largest=np.maximum.reduceat(np.abs(distance), groups.begin),
        line_largest=np.maximum.reduceat(np.abs(rest), groups.begin),
        d0=np.abs(d0),
        z0=z0,
        curvature=2 * np.abs(circles[0]),
        slope=slope,
    )


def _fit_circles(groups: HitGroups, u: Values, v: Values) -> _Circles:
    """Fits a circle to each group's points u, v [R], taken from the group's mean: minimises the
    mean square of k (u² + v²) + b u + c v + d with b² + c² = 1.
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
    return k / norm, b / norm, c / norm, -k * mean_square / norm


def _distance(a: Values, value: Values) -> Values:
    """Returns points' signed distances to circles; value: the circle equation at the point."""
    signed: Values = 2 * value / (1 + np.sqrt(np.maximum(1 + 4 * a * value, 0)))
    return signed


def _perigees(circles: _Circles, x: Values, y: Values) -> tuple[Values, Points, Points]:
    """Returns, for each circle [C], its signed distance from a given point x, y, its point nearest
    to that one, and the unit vector along the circle there, towards the mean.
    """
    a, b, c, d = circles
    distance = _distance(a, a * (x * x + y * y) + b * x + c * y + d)
    away_x, away_y = b + 2 * a * x, c + 2 * a * y
    length = np.maximum(np.hypot(away_x, away_y), TINY)
    away_x, away_y = away_x / length, away_y / length
    near_x, near_y = x - distance * away_x, y - distance * away_y
    sign = np.where(near_x * away_y - near_y * away_x < 0, -1.0, 1.0)
    return distance, (near_x, near_y), (-sign * away_y, sign * away_x)


def _arcs(
    groups: HitGroups, circles: _Circles, u: Values, v: Values, perigee: Points, direction: Points
) -> Values:
    """Returns each point's arc length from the perigee, negative if opposite to `direction`: [R].

    It is computed from the chord, so it is at most half a turn.
    """
    du, dv = u - groups.spread(perigee[0]), v - groups.spread(perigee[1])
    chord = np.hypot(du, dv)
    sine = np.minimum(groups.spread(np.abs(circles[0])) * chord, 1)
    stretch = np.divide(np.arcsin(sine), sine, out=np.ones_like(sine), where=sine > 0)
    ahead = du * groups.spread(direction[0]) + dv * groups.spread(direction[1])
    arc: Values = np.copysign(chord * stretch, ahead)
    return arc


def _fit_lines(groups: HitGroups, arc: Values, z: Values) -> tuple[Values, Values, Values]:
    """Fits z = z0 + slope * arc to each group; returns z0 [C], slope [C] and residuals [R]."""
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


# A particle makes up to about 20 hits. Without a limit a chain of N hits would have N² / 2 rows.
MOST_HITS = 64
PURITY = 0.75
FEATURES = (
    "hits",
    "lowest_score",
    "mean_score",
    "next_score",
    "next_hits",
    "circle_residual",
    "line_residual",
    "circle_largest",
    "line_largest",
    "d0",
    "z0",
    "radius",
    "slope",
    "first_r",
    "last_r",
)
# Added to values to keep their logarithms finite; much smaller values become equal.
_SCORE, _RESIDUAL, _D0, _Z0, _CURVATURE = 1e-6, 1e-3, 1e-2, 1.0, 1e-6  # mm, 1/mm


@dataclass(frozen=True)
class Candidates:
    """C track candidates. union [C]: index of the union in the tree. features: [C, F] float32.

    Features, by FEATURES: the number of hits; the logits of the lowest and the mean score of the
    edges that united them; the logit of the edge that unites them with other hits (LOWEST_SCORE
    without one), and log(1 + the number of these), since a track that lacks hits may find them
    there; logarithms of the helix's residuals, largest distances, |d0|, |z0| and radius
    (`fit_helices`), and its |eta| as asinh |slope|; the least and largest distance from the beam
    line. Lengths are in mm. Signs are left out: tracks differ by them, quality does not.
    """

    union: Ids
    hits: HitGroups
    features: NDArray[np.float32]


def find_candidates(tree: HitTree, position: Values, min_hits: int) -> Candidates:
    """Returns the unions of at least `min_hits` hits, with features: position [N, 3] (mm).

    Unions of more than MOST_HITS hits are no candidates.
    """
    union = np.flatnonzero((tree.size >= min_hits) & (tree.size <= MOST_HITS))
    size, parent = tree.size[union], tree.parents()[union]
    place = ranges(tree.first[union], size)
    hits = HitGroups(tree.hits[place], size)
    features = features_of(
        hits,
        position,
        logit(tree.score[union]),
        _mean_logits(tree, hits, place),
        logit(np.where(parent < 0, LOWEST_SCORE, tree.score[parent])),
        np.log1p(np.where(parent < 0, 0, tree.size[parent] - size)),
    )
    return Candidates(union, hits, features)


def are_good(hits: HitGroups, particle_id: Ids) -> NDArray[np.bool_]:
    """Marks the groups that are good tracks: one particle made more than PURITY of the group's
    hits, and more than half of its own hits are in it. particle_id [N] (0: noise) -> [C].
    """
    ids, particle, particle_hits = np.unique(particle_id, return_inverse=True, return_counts=True)
    group = np.repeat(np.arange(len(hits.size)), hits.size)
    key, shared = np.unique(group * len(ids) + particle[hits.hit], return_counts=True)
    group, particle = np.divmod(key, max(len(ids), 1))
    pure = shared > PURITY * hits.size[group]
    complete = 2 * shared > particle_hits[particle]
    good = np.zeros(len(hits.size), bool)
    good[group[pure & complete & (ids[particle] != NOISE)]] = True
    return good


def are_pure(hits: HitGroups, particle_id: Ids) -> NDArray[np.bool_]:
    """Marks the groups whose hits are all of one particle. particle_id [N] (0: noise) -> [C]."""
    particle = particle_id[hits.hit]
    least = np.minimum.reduceat(particle, hits.begin)
    most = np.maximum.reduceat(particle, hits.begin)
    pure: NDArray[np.bool_] = (least == most) & (least != NOISE)
    return pure


def features_of(hits: HitGroups, position: Values, *scores: Values) -> NDArray[np.float32]:
    """Computes the features of groups: [C, F]. scores: lowest_score to next_hits, [C] each."""
    fit = fit_helices(hits, position)
    r = np.hypot(position[:, 0], position[:, 1])[hits.hit]
    columns = (
        hits.size,
        *scores,
        np.log(fit.circle_residual + _RESIDUAL),
        np.log(fit.line_residual + _RESIDUAL),
        np.log(fit.circle_largest + _RESIDUAL),
        np.log(fit.line_largest + _RESIDUAL),
        np.log(fit.d0 + _D0),
        np.log(np.abs(fit.z0) + _Z0),
        -np.log(fit.curvature + _CURVATURE),
        np.arcsinh(np.abs(fit.slope)),
        np.minimum.reduceat(r, hits.begin),
        np.maximum.reduceat(r, hits.begin),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _mean_logits(tree: HitTree, hits: HitGroups, place: Ids) -> Values:
    """Averages the logits of the scores of the edges that united each candidate: [C].

    In `tree.hits`, one such edge meets between each two neighbouring hits of the candidate.
    """
    between = np.zeros(len(tree.hits))
    between[tree.meeting] = logit(tree.score)
    rows = between[place]
    rows[hits.begin] = 0  # the edge there leads to another candidate's hit
    return hits.means(rows) * hits.size / (hits.size - 1)


def logit(score: Values) -> Values:
    """Returns the logits of scores, clipped to stay finite at 0 and 1."""
    score = np.clip(score, _SCORE, 1 - _SCORE)
    return np.log(score / (1 - score))
