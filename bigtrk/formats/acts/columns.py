"""The columns that ACTS's GNN plugin gives a model, and the units that they are in.

ACTS divides each feature of a node by a scale, and computes those of edges from the scaled ones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigtrk.graphs.features import FROM_PHI, NODE_FEATURES, SCALES, Scale

# ACTS's examples for the ODD and the ITk divide by these: mm, rad, mm, 1. Theirs for phi is
# 3.141592654 in float32, which is the float32 nearest to pi.
NODE_SCALES = dict(zip(NODE_FEATURES, (1000.0, math.pi, 1000.0, 1.0), strict=True))
# By what ACTS's features of edges are thus divided.
EDGE_SCALES = {
    "dr": 1000.0,  # mm
    "dphi": math.pi,  # rad
    "dz": 1000.0,  # mm
    "deta": 1.0,
    "phislope": math.pi / 1000.0,  # rad/mm
    "rphislope": math.pi,  # rad
}


@dataclass(frozen=True)
class NodeColumns:
    """The columns of x [N, F] that an exported model reads: R, phi, Z and eta, and what its
    features need beside these; `scales` divide each, in the order of x.

    shifts: what is subtracted from the scaled column of a feature whose mean was measured.
    """

    scales: Mapping[str, float]
    shifts: Mapping[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.scales)


def node_columns(chosen: Sequence[str], measured: Mapping[str, Scale]) -> NodeColumns:
    """Lists the columns of x that features `chosen` of nodes are made from.

    measured: mean and deviation of the features that have no scale of ours.
    """
    scales, shifts = dict(NODE_SCALES), {}
    for name in chosen:
        if name in scales or name in FROM_PHI:
            continue
        scale = SCALES.get(name) or measured[name]
        if isinstance(scale, tuple):
            mean, deviation = scale
            scale, shifts[name] = deviation, mean / deviation
        scales[name] = scale
    return NodeColumns(scales, shifts)
