"""Estimates from draws of a gradient: its bias, its noise, and the batch size that pays.

All of them follow from inner products, and where a product of two draws stands for a product of
their expectations, the two are independent: so neither the bias nor the norm of the mean gradient
counts its own noise. Errors are those of the jackknife.

Shapes: n draws, P values of a gradient.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.records.audit import DrawStatistics, Measured

Floats = NDArray[np.float64]
# Fewer blocks than this give no error: leaving one out leaves no pair.
_FEWEST_BLOCKS = 3
_TINY = 1e-300


@dataclass(frozen=True)
class Products:
    """The inner products of n draws g of a gradient with each other, with the exact gradients r of
    the same events, and with the exact gradient G of all events.

    drawn [n, n]: g g'. apart [n, n]: (g - r)(g' - r'). crossed [n, n]: g r'. exact [n, n]: r r'.
    along [n]: g G. target: G G. blocks [n]: draws of different blocks are independent.
    """

    drawn: Floats
    apart: Floats
    crossed: Floats
    exact: Floats
    along: Floats
    target: float
    blocks: NDArray[np.int64]

    def without(self, block: int) -> "Products":
        """Leaves the draws of a block out."""
        kept = np.flatnonzero(self.blocks != block)
        square = np.ix_(kept, kept)
        return Products(
            self.drawn[square],
            self.apart[square],
            self.crossed[square],
            self.exact[square],
            self.along[kept],
            self.target,
            self.blocks[kept],
        )


def products(draws: Floats, exact: Floats, target: Floats, events: NDArray[np.int64]) -> Products:
    """Multiplies draws [n, P], the exact gradients of their events [n, P] and that of all events
    [P]. events [n]: those drawn, which are a sample of all there could be, so that two draws of one
    event are not independent; where all draws are of one event, they are.
    """
    apart = draws - exact
    one_event = len(np.unique(events)) < 2
    return Products(
        drawn=draws @ draws.T,
        apart=apart @ apart.T,
        crossed=draws @ exact.T,
        exact=exact @ exact.T,
        along=draws @ target,
        target=float(target @ target),
        blocks=np.arange(len(draws)) if one_event else events,
    )


Statistic = Callable[[Products], float]


def _between(found: Floats, blocks: NDArray[np.int64]) -> float:
    """Averages over pairs of independent draws; NaN where there is none."""
    independent = blocks[:, None] != blocks
    return float(found[independent].mean()) if independent.any() else math.nan


def _spread(found: Floats, blocks: NDArray[np.int64]) -> float:
    """Estimates the trace of the covariance: the mean square less that of the expectation."""
    return float(found.diagonal().mean()) - _between(found, blocks)


def bias_squared(of: Products) -> float:
    """Estimates |E(g - r)|^2 / |G|^2, which may come out below 0 where there is no bias."""
    return _between(of.apart, of.blocks) / of.target


def variance(of: Products) -> float:
    """Estimates tr Cov(g - r) / |G|^2: the noise that cutting or sampling adds to an event's."""
    return _spread(of.apart, of.blocks) / of.target


def noise(of: Products) -> float:
    """Estimates tr Cov(g) / |G|^2, with the noise from event to event."""
    return _spread(of.drawn, of.blocks) / of.target


def signal(of: Products) -> float:
    """Estimates |E g|^2 / tr Cov(g), one over the simple noise scale.

    With draws of one event each these are the unbiased estimates of McCandlish et al. 2018
    (arXiv:1812.06162, appendix A.1) from batches of 1 and of n.
    """
    spread = _spread(of.drawn, of.blocks)
    return _between(of.drawn, of.blocks) / spread if spread > 0 else math.nan


def cosine(of: Products) -> float:
    """Averages the cosine of a draw and the exact gradient of its event; 0 of one that is zero."""
    norms = np.sqrt(of.drawn.diagonal() * of.exact.diagonal())
    return float((of.crossed.diagonal() / np.maximum(norms, _TINY)).mean())


def cosine_of_mean(of: Products) -> float:
    """Gives the cosine of the mean of the draws and the mean exact gradient of their events."""
    norms = of.drawn.sum() * of.exact.sum()
    return float(of.crossed.sum() / math.sqrt(max(norms, _TINY)))


def progress(of: Products) -> float:
    """Estimates (G E g)^2 / (|G|^2 E|g|^2): what the loss falls by in a step along a draw, over
    what it falls by along the exact gradient, each of the best length, where the curvature is the
    same in all directions (McCandlish et al., equation 2.6, with a bias). 0 of draws that point
    against it, along which the loss rises.
    """
    along = max(0.0, float(of.along.mean()))
    return along**2 / max(of.target * float(of.drawn.diagonal().mean()), _TINY)


_STATISTICS: dict[str, Statistic] = {
    "bias_squared": bias_squared,
    "variance": variance,
    "noise": noise,
    "cosine": cosine,
    "signal": signal,
    "progress": progress,
}


def statistics(of: Products) -> DrawStatistics:
    """Makes the record of all estimates, each with the standard error that leaving out one block
    after the other gives; None where too few draws are independent.
    """
    blocks = np.unique(of.blocks).tolist()
    left = [_values(of.without(block)) for block in blocks] if len(blocks) > 1 else []
    found = {
        name: _measured(value, [one[name] for one in left]) for name, value in _values(of).items()
    }
    along = found["signal"]
    return DrawStatistics(
        **found,
        cosine_of_mean=cosine_of_mean(of),
        noise_scale=1 / along.value if along and along.value > 0 else None,
    )


def _values(of: Products) -> dict[str, float]:
    return {name: statistic(of) for name, statistic in _STATISTICS.items()}


def _measured(value: float, left: list[float]) -> Measured | None:
    """Gives a value and the jackknife's error of those that leave one block out (Efron 1982)."""
    if not math.isfinite(value):
        return None
    if len(left) < _FEWEST_BLOCKS or not np.isfinite(left).all():
        return Measured(value=value)
    return Measured(value=value, error=math.sqrt((len(left) - 1) * float(np.var(left))))
