"""Candidates for tracks: unions of a tree of hits, and what is told of each to judge its quality.

Shapes: N hits, M unions, C candidates, R rows, which are the hits of one candidate after another, F
features.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import NOISE
from bigtrk.tracks.builders.trees.constraints import Ids, Values
from bigtrk.tracks.builders.trees.hit_groups import HitGroups, ranges
from bigtrk.tracks.builders.trees.hit_tree import LOWEST_SCORE, HitTree
from bigtrk.tracks.builders.trees.track_fit import fit_helices

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
    "d0",
    "z0",
    "radius",
    "slope",
    "first_r",
    "last_r",
)
# Keep logarithms finite; what is smaller is equal.
_SCORE, _RESIDUAL, _D0, _Z0, _CURVATURE = 1e-6, 1e-3, 1e-2, 1.0, 1e-6  # mm, 1/mm


@dataclass(frozen=True)
class Candidates:
    """Candidates: union [C], rows of the tree's unions; their hits; and features [C, F] float32.

    Features, by FEATURES: the number of hits; the logits of the scores of the edges that united
    them, of the lowest and the mean; that of the edge that unites them with others (where none
    does, of LOWEST_SCORE), and log(1 + the number of these others), since a track that lacks hits
    has some to be united with; logarithms of the residuals, |d0|, |z0| and radius of the helix
    (track_fit.py), and asinh |slope|, its |eta|; the least and the largest distance from the beam
    line (mm). Lengths are in mm. Signs are left out: tracks differ by them, quality does not.
    """

    union: Ids
    hits: HitGroups
    features: NDArray[np.float32]


def find_candidates(tree: HitTree, position: Values, min_hits: int) -> Candidates:
    """Lists the unions of at least `min_hits` hits, with their features: position [N, 3] (mm).

    Larger ones than MOST_HITS are no candidates.
    """
    union = np.flatnonzero((tree.size >= min_hits) & (tree.size <= MOST_HITS))
    size = tree.size[union]
    place = ranges(tree.first[union], size)
    hits = HitGroups(tree.hits[place], size)
    return Candidates(union, hits, _features(tree, union, hits, place, position))


def are_good(hits: HitGroups, particle_id: Ids) -> NDArray[np.bool_]:
    """Says of each group whether it is a good track: one particle has made more than PURITY of its
    hits, and has more than half of its own hits there. particle_id [N] (0: noise) -> [C].
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


def _features(
    tree: HitTree, union: Ids, hits: HitGroups, place: Ids, position: Values
) -> NDArray[np.float32]:
    fit = fit_helices(hits, position)
    parent = tree.parents()[union]
    others = tree.size[parent] - hits.size
    r = np.hypot(position[:, 0], position[:, 1])[hits.hit]
    columns = (
        hits.size,
        _logit(tree.score[union]),
        _mean_logits(tree, hits, place),
        _logit(np.where(parent < 0, LOWEST_SCORE, tree.score[parent])),
        np.log1p(np.where(parent < 0, 0, others)),
        np.log(fit.circle_residual + _RESIDUAL),
        np.log(fit.line_residual + _RESIDUAL),
        np.log(fit.d0 + _D0),
        np.log(np.abs(fit.z0) + _Z0),
        -np.log(fit.curvature + _CURVATURE),
        np.arcsinh(np.abs(fit.slope)),
        np.minimum.reduceat(r, hits.begin),
        np.maximum.reduceat(r, hits.begin),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _mean_logits(tree: HitTree, hits: HitGroups, place: Ids) -> Values:
    """Averages the logits of the scores of the edges that united each candidate [C].

    Those edges meet between the candidate's first and last hit, one between each two.
    """
    logit = np.zeros(len(tree.hits))
    logit[tree.meeting] = _logit(tree.score)
    rows = logit[place]
    rows[hits.begin] = 0  # what meets there is outside
    return hits.means(rows) * hits.size / (hits.size - 1)


def _logit(score: Values) -> Values:
    score = np.clip(score, _SCORE, 1 - _SCORE)
    return np.log(score / (1 - score))
