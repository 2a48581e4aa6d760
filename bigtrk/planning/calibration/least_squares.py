"""Least squares of what cannot be negative."""

import numpy as np
from numpy.typing import NDArray


def non_negative(design: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solves design [M, N] @ x = target [M] for x [N] >= 0 by least squares."""
    # Imported here: a warm-up's process, whose memory is measured, is to have what a run's has.
    from scipy.optimize import nnls

    scale = np.maximum(design.max(axis=0), 1e-300)  # amounts differ by many orders of magnitude
    found = nnls(design / scale, target)[0]
    # Rounding leaves parts in a billion of kinds that take no time.
    solution: NDArray[np.float64] = np.where(found < 1e-9, 0.0, found) / scale
    return solution
