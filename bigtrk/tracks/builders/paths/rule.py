"""The edges that a walk follows."""

from typing import NamedTuple


class Rule(NamedTuple):
    """Follows, of the edges to unused hits, the best if its score is above `best`, and those others
    whose score is above `others`.

    Paths of fewer than `min_hits` hits are not taken.
    """

    best: float
    others: float
    min_hits: int
