"""A trained model that is handed over to ACTS, and the columns that ACTS's GNN plugin gives it.

ACTS divides each feature of a node by a scale, and computes those of edges from the scaled ones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from bigtrk.errors import InputError, one_line
from bigtrk.graphs.features import FROM_PHI, NODE_FEATURES, SCALES, Scale
from bigtrk.models.settings import MODELS
from bigtrk.records.run import MeasuredScales
from bigtrk.training.settings import Configuration, DataSettings

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


@dataclass(frozen=True)
class Stage:
    """A trained model. name: of its files. data: the features that it reads, and measured: the
    scales of those that have none of ours.

    cut: the score that an edge needs to be kept; radius: within which embedded hits are joined.
    Either is None where it does not apply, or is not known.
    """

    name: str
    model: nn.Module
    data: DataSettings
    measured: MeasuredScales
    cut: float | None = None
    radius: float | None = None

    @cached_property
    def columns(self) -> NodeColumns:
        """Gives the columns of x that its exported forms read."""
        return node_columns(self.data.node_features, self.measured.nodes)


def check_exportable(run: str, configuration: Configuration) -> None:
    """Checks that ACTS can be given the model of `run`, as messages name it.

    Raises:
        InputError: there is no form of it that ACTS loads, or it reads features of edges that ACTS
            does not compute.
    """
    model, chosen = configuration.model, configuration.data.edge_features
    if not model.has_plain_form:
        exportable = [name for name, one in MODELS.items() if one.has_plain_form]
        raise InputError(
            f"{run}: its model ({model.name}) has no form that ACTS loads; export one that was "
            f"trained with model.name of {', '.join(exportable)}"
        )
    unknown = [name for name in chosen if name not in EDGE_SCALES]
    if model.kind == "edge" and not chosen:
        raise InputError(
            f"{run}: its model reads no features of edges; train it with data.edge_features of "
            f"{', '.join(EDGE_SCALES)}"
        )
    if model.kind == "edge" and unknown:
        raise InputError(
            f"{run}: its model reads the edge feature {one_line(repr(unknown[0]))}, which ACTS "
            f"does not compute; train it with data.edge_features of {', '.join(EDGE_SCALES)}"
        )
