"""Compares tracks as sets of hits, whatever their numbers. Shapes: N hits."""

import numpy as np

from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.matching import Ids


def changed_hits(one: Ids, other: Ids) -> int:
    """Counts the hits whose track is of other hits: tracks [N] each, of the same N hits. A hit in
    no track is alone.
    """
    _, first, first_size = np.unique(_alone(one), return_inverse=True, return_counts=True)
    _, second, second_size = np.unique(_alone(other), return_inverse=True, return_counts=True)
    _, pair, shared = np.unique(
        first * len(second_size) + second, return_inverse=True, return_counts=True
    )
    same = (shared[pair] == first_size[first]) & (shared[pair] == second_size[second])
    return int((~same).sum())


def _alone(track: Ids) -> Ids:
    """Gives each hit in no track a number of its own: [N] -> [N]."""
    return np.where(track == NO_TRACK, NO_TRACK - 1 - np.arange(len(track)), track)
