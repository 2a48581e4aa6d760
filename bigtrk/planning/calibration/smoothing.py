"""Corrections without the noise of single steps.

A calibration trains each case for a few steps; an hour later nine in ten of 159 cases took the same
time to within 18 % on one rank, and to within 13 % on two. Three calibrations of one host told how
corrections vary: with the model's width, with the edges per node at that width, with its precision
there, and with how it recomputes. What a single case differed by beyond these was noise: 10 % of
its seconds, and nothing of its own. So each correction is the most likely one, given those of all
cases of its model (the mean of a Gaussian process). It predicts that of another calibration to
10.9 %, where the same case alone does to 11.8 %, most of which is the other's own noise.

Long passes (LONG in warmup_cases.py) differ from what short ones tell: for each edge, on graphs ten
times as large, attention networks took 1.0 to 1.5 times as long, the others 0.8 to 1.3 times. So
do those of graphs of a thousand edges, whose rows all stay in caches: attention networks took 0.5
to 0.6 times as long as counted, Interaction GNNs 0.8 to 1.1 times.
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from bigtrk.cost.rates import Correction

# By how much corrections vary with each of these, as standard deviations of their logarithms: twice
# what was found, since other hosts differ by more. All are of one model.
_VARY = (
    (0.12, ("hidden",)),
    (0.16, ("hidden", "degree")),
    (0.10, ("recompute",)),
    (0.08, ("hidden", "precision")),
)
# Those by which long passes differ from short ones, of the size of what was measured, and those by
# which the least do. Between the lengths, in seconds counted, the logarithm of a correction is
# linear in theirs.
_VARY_WITH_LENGTH: tuple[tuple[float, tuple[str, ...]], ...] = (
    (0.2, ()),
    (0.2, ("recompute",)),
)
_VARY_IF_LEAST: tuple[tuple[float, tuple[str, ...]], ...] = (
    (0.3, ()),
    (0.2, ("recompute",)),
    (0.2, ("recompute", "precision")),
)
_LEAST, _SMALL, _SHORT, _LONG = 0.01, 0.05, 0.2, 2.0
_NOISE = 0.10
_LENGTHS = (_LEAST, _SMALL, _SHORT, _LONG)
# Edges per node of the graphs that most cases have; others count as the nearer of them.
_DENSE, _SPARSE = 10.0, 1.0


def smoothed(measured: Sequence[Correction]) -> list[Correction]:
    """Returns the corrections of each model that was measured: of all its ways of recomputing and
    precisions at all its widths, dense and sparse, of the least passes, short and long ones.
    """
    return [found for model in _models(measured) for found in _of_model(model)]


def _models(measured: Sequence[Correction]) -> list[list[Correction]]:
    names = dict.fromkeys(one.model for one in measured)
    return [[one for one in measured if one.model == name] for name in names]


def _of_model(measured: Sequence[Correction]) -> list[Correction]:
    known = [one.model_copy(update={"degree": _nearer(one.degree)}) for one in measured]
    ways = dict.fromkeys((one.recompute, one.precision) for one in known)
    places = dict.fromkeys((one.hidden, one.degree) for one in known)
    asked = [
        Correction(
            model=known[0].model,
            recompute=way,
            precision=precision,
            hidden=hidden,
            degree=degree,
            seconds=seconds,
            factor=1.0,
        )
        for (hidden, degree), (way, precision), seconds in product(places, ways, _LENGTHS)
    ]
    covariance = _covariance(known, known) + _NOISE**2 * np.eye(len(known))
    logarithms = np.log([one.factor for one in known])
    factors = np.exp(_covariance(asked, known) @ np.linalg.solve(covariance, logarithms))
    pairs = zip(asked, factors.tolist(), strict=True)
    return [one.model_copy(update={"factor": factor}) for one, factor in pairs]


def _nearer(degree: float) -> float:
    return _DENSE if degree > math.sqrt(_DENSE * _SPARSE) else _SPARSE


def _covariance(rows: Sequence[Correction], columns: Sequence[Correction]) -> NDArray[np.float64]:
    return np.array([[_shared(row, column) for column in columns] for row in rows])


def _shared(one: Correction, other: Correction) -> float:
    """Returns the variance that two corrections of a model have in common."""
    long = _beyond(one, _SHORT, _LONG) * _beyond(other, _SHORT, _LONG)
    least = _beyond(one, _SMALL, _LEAST) * _beyond(other, _SMALL, _LEAST)
    return (
        _common(_VARY, one, other)
        + long * _common(_VARY_WITH_LENGTH, one, other)
        + least * _common(_VARY_IF_LEAST, one, other)
    )


def _common(
    varying: Sequence[tuple[float, tuple[str, ...]]], one: Correction, other: Correction
) -> float:
    return sum(
        deviation**2
        for deviation, names in varying
        if all(getattr(one, name) == getattr(other, name) for name in names)
    )


def _beyond(one: Correction, first: float, last: float) -> float:
    """Returns 0 for a pass of `first` seconds, 1 for one of `last`, or farther from the first."""
    place = math.log(one.seconds / first) / math.log(last / first)
    return min(max(place, 0.0), 1.0)
