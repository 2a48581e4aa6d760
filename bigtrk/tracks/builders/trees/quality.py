"""The quality of a candidate for a track: the probability that it is a good one.

A small network of our own: linear layers with ReLU between them, on standardised features.

Shapes: C candidates, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from bigtrk.tracks.builders.trees.candidates import FEATURES
from bigtrk.tracks.builders.trees.constraints import Values

HIDDEN = 64
WIDTHS = (len(FEATURES), HIDDEN, HIDDEN, 1)


@dataclass(frozen=True, eq=False)
class Quality:
    """A trained network: mean and scale [F] of the features; weights, for each layer a weight
    [outputs, inputs] and a bias [outputs], by WIDTHS. All are float32. with_modules: the graphs
    that it learnt from told the hits' modules.
    """

    with_modules: bool
    mean: Tensor
    scale: Tensor
    weights: tuple[Tensor, ...]

    def __call__(self, features: NDArray[np.float32]) -> Values:
        """Returns the probability that each candidate is a good track: [C, F] -> [C] float64.

        Machines round sums of products differently; in float64 too little to change tracks.
        """
        weights = [weight.double() for weight in self.weights]
        values = logits(weights, standardised(features, self.mean, self.scale).double())
        probability: Values = values.sigmoid().numpy()
        return probability


def standardised(features: NDArray[np.float32], mean: Tensor, scale: Tensor) -> Tensor:
    """Subtracts the mean and divides by the scale of each feature: [C, F] -> [C, F]."""
    return (torch.from_numpy(features) - mean) / scale


def logits(weights: Sequence[Tensor], features: Tensor) -> Tensor:
    """Computes the network: [C, F] standardised features -> [C]."""
    values = features
    for layer in range(0, len(weights), 2):
        values = linear(values.relu() if layer else values, weights[layer], weights[layer + 1])
    return values[:, 0]
