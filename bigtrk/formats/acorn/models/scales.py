"""The scales of acorn's features and of ours, carried over in the first layers of the encoders.

Both divide a column by a scale before a model reads it, by other ones; of columns whose values are
not known before, we also subtract a mean. A first layer W x + b that read the one reads the other
after its columns are rescaled, so a model's results stay the same.

Shapes: H = hidden, C columns.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bigtrk.graphs.features import EDGE_FEATURES, NODE_FEATURES, SCALES, Scale


def edge_scales(node_scales: Mapping[str, float]) -> dict[str, float]:
    """Returns the scales of edge features that acorn computes of scaled nodes: by name, in mm, rad
    and rad/mm. A column that is not scaled is divided by 1.
    """
    r, phi, z, eta = (node_scales.get(name, 1.0) for name in NODE_FEATURES)
    return dict(zip(EDGE_FEATURES, (r, phi, z, eta, phi / r, phi), strict=True))


def our_scales(acorns: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Returns the means and deviations, by name, of the columns of acorn's that have no scale here:
    with acorn's own scale they need not be measured.
    """
    return {name: (0.0, scale) for name, scale in acorns.items() if name not in SCALES}


def read_as_ours(weight: Tensor, acorns: Mapping[str, float]) -> Tensor:
    """Rescales the first layer [H, C] of a model of acorn's, whose columns have these scales in
    this order: it then reads our features.
    """
    ours = [SCALES.get(name, scale) for name, scale in acorns.items()]
    return (weight.double() * _ratios(ours, list(acorns.values()))).float()


def read_as_acorns(
    weight: Tensor, bias: Tensor, ours: Sequence[Scale], acorns: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Rescales the first layer [H, C], [H] of a model of ours, whose columns have these scales: it
    then reads acorn's features.
    """
    pairs = [scale if isinstance(scale, tuple) else (0.0, scale) for scale in ours]
    means, deviations = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    exact = weight.double()
    shifted = bias.double() - exact @ (means / deviations)
    return (exact * _ratios(acorns, deviations.tolist())).float(), shifted.float()


def _ratios(above: Sequence[float], below: Sequence[float]) -> Tensor:
    return torch.tensor(above, dtype=torch.float64) / torch.tensor(below, dtype=torch.float64)
