"""Edges counted by score and kind: ROC and purity against any cut rest on these.

Shapes: E edges of one whole event, B bins.
"""

import math

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.overlaps import Ids

KINDS = ("target", "other", "false")
# Even steps of the logit, since good models crowd scores near 0 and 1.
SCORE_LIMITS = (0.0, *(1 / (1 + math.exp(-step / 4)) for step in range(-40, 41)), 1.0)


def score_counts(
    scores: NDArray[np.floating], y: NDArray[np.bool_], is_target: NDArray[np.bool_]
) -> Ids:
    """Counts edges by KINDS and by score between SCORE_LIMITS: scores, y, is_target [E] -> [3, B].

    A bin holds its upper limit, so that those behind a limit are the edges above it as a cut.
    """
    bins = len(SCORE_LIMITS) - 1
    place = np.searchsorted(SCORE_LIMITS, scores, side="left") - 1
    place = np.maximum(place, 0)  # a score of 0 has no bin below it
    masks = (is_target, y & ~is_target, ~y)
    return np.stack([np.bincount(place[mask], minlength=bins) for mask in masks])
