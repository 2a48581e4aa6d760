"""A trained model that is handed over to ACTS, and whether it can be."""

from dataclasses import dataclass
from functools import cached_property

from torch import nn

from bigtrk.errors import InputError, one_line
from bigtrk.formats.acts.columns import EDGE_SCALES, NodeColumns, node_columns
from bigtrk.records.run import MeasuredScales
from bigtrk.training.settings import Configuration, DataSettings

EXPORTABLE = ("interaction", "mlp", "embedding")


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
    if model.name not in EXPORTABLE:
        raise InputError(
            f"{run}: its model ({model.name}) has no form that ACTS loads; export one that was "
            f"trained with model.name of {', '.join(EXPORTABLE)}"
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
