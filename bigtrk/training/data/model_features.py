"""The features that a model reads: chosen, computed where functions are named, of order one.

Shapes: N nodes, E edges, F node features, G edge features.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from bigtrk.errors import InputError, one_line
from bigtrk.graphs.computed_features import (
    ComputedFeatures,
    Rows,
    StoredColumns,
    load_functions,
    with_columns,
)
from bigtrk.graphs.features import EDGE_FEATURES, SCALES, Scale, normalised
from bigtrk.graphs.sector import Sector
from bigtrk.records.run import MeasuredScales
from bigtrk.training.settings import DataSettings

NOTHING_MEASURED = MeasuredScales()


@dataclass(frozen=True)
class ModelFeatures:
    """The features of nodes and edges that `data` names, made of order one by the scales of ours
    and those `measured` of others.
    """

    data: DataSettings
    computed: ComputedFeatures
    measured: MeasuredScales = field(default=NOTHING_MEASURED)

    def of_nodes(self, sector: Sector) -> Tensor:
        """Gives the node features of a sector `with_computed` columns: [N, F].

        Raises:
            InputError: the sector lacks a column, or there is no scale of it.
        """
        columns = sector.node_features, sector.node_feature_names
        scales = _scales(self.measured.nodes)
        return _normalised(sector.event, *columns, scales, self.data.node_features)

    def of_edges(self, sector: Sector) -> Tensor:
        """Gives the edge features of a sector `with_computed` columns: [E, G].

        Raises:
            InputError: as of_nodes.
        """
        columns = sector.edge_features, sector.edge_feature_names
        scales = _scales(self.measured.edges)
        return _normalised(sector.event, *columns, scales, self.data.edge_features)

    def of_hits(self, hits: StoredColumns, what: str, ids: Tensor) -> Tensor:
        """Gives the node features of hits that are in no graph: [N, F].

        what: the event, and "hit", for messages. ids [N]: the hits' own.

        Raises:
            InputError: as of_nodes; a function fails, or gives anything but finite numbers.
        """
        columns = with_columns(hits.features, self.computed.nodes, Rows(what, (hits,), ids))
        names = (*hits.names, *self.computed.nodes)
        return normalised(columns, names, _scales(self.measured.nodes), self.data.node_features)


def load_features(data: DataSettings, measured: MeasuredScales = NOTHING_MEASURED) -> ModelFeatures:
    """Imports the functions among the features that `data` names.

    Raises:
        InputError: one cannot be imported.
    """
    nodes = load_functions(data.node_features, "data.node_features")
    edges = load_functions(data.edge_features, "data.edge_features")
    of_positions = [name for name in EDGE_FEATURES if name in data.edge_features]
    return ModelFeatures(data, ComputedFeatures(nodes, edges, of_positions), measured)


def lacking_scales(data: DataSettings) -> tuple[list[str], list[str]]:
    """Lists the features of nodes and of edges whose scales are to be measured."""
    nodes, edges = (
        [name for name in dict.fromkeys(chosen) if name not in SCALES]
        for chosen in (data.node_features, data.edge_features)
    )
    return nodes, edges


def check_measured(where: str, data: DataSettings, measured: MeasuredScales) -> None:
    """Checks that the file `where` has `measured` the scales of all features that need it.

    Raises:
        InputError: one is missing, or is of another feature.
    """
    for name, scale, wanted in _found(data, measured):
        told = f"{where}: measured: feature {one_line(repr(name))} was scaled by {scale}"
        if wanted and scale is None:
            raise InputError(f"{told}, and not by a mean and a deviation; train again")
        if not wanted:
            raise InputError(f"{told}, and is not among those that need it; train again")


def _found(
    data: DataSettings, measured: MeasuredScales
) -> Iterator[tuple[str, tuple[float, float] | None, bool]]:
    """Yields features, what they were scaled by, and whether that had to be measured."""
    kinds = zip(lacking_scales(data), (measured.nodes, measured.edges), strict=True)
    for wanted, scales in kinds:
        for name in dict.fromkeys((*wanted, *scales)):
            yield name, scales.get(name), name in wanted


def _normalised(event: str, *columns_and_scales: Any) -> Tensor:
    """Calls `normalised`, whose errors do not know the event."""
    try:
        return normalised(*columns_and_scales)
    except InputError as error:
        raise InputError(f"{event}: {error}") from None


def _scales(measured: Mapping[str, Scale]) -> dict[str, Scale]:
    return {**measured, **SCALES}
