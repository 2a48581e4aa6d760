"""The scales of features that have none of their own: measured in the events to train on.

Each node and edge counts once, in the part of its event that owns it, so neither the ranks nor the
cuts of events change a scale.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from bigtrk.graphs.features import check_finite
from bigtrk.graphs.sector import Sector
from bigtrk.parallel.collectives import gather_items, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run import MeasuredScales
from bigtrk.tracing import traced
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.model_features import ModelFeatures, lacking_scales, load_features
from bigtrk.training.settings import DataSettings

# Sums of parts round otherwise than a sum of all, by 1e-16 of it: without the digits that this
# reaches, scales are the same to the last bit.
_DIGITS = 9


class Moments(NamedTuple):
    """Some values' number (size), mean, summed squares about the mean, least and largest."""

    size: int
    mean: float
    squares: float
    least: float
    largest: float


Columns = dict[str, Moments]


def measure_scales(
    data: DataSettings, sources: Sequence[EventSource], ranks: Ranks
) -> MeasuredScales:
    """Measures the mean and deviation of the features of `data` that need it over the owned nodes
    and edges of all `sources`, which the ranks share. Reads nothing if there are none. Collective.

    Raises:
        InputError: on all ranks, an event cannot be read or lacks a column, a value is not finite,
            or a function of the user's own breaks its promises (computed_features.py).
    """
    if not any(lacking_scales(data)):
        return MeasuredScales()
    parts = [(source, part) for source in sources for part in range(source.parts)]
    mine = parts[ranks.rank :: ranks.world_size]
    measured = together(lambda: _measured(load_features(data), mine))
    everyone = [one for of_rank in gather_items(measured) for one in of_rank]
    nodes, edges = lacking_scales(data)
    return MeasuredScales(
        nodes={name: _scale([columns[name] for columns, _ in everyone]) for name in nodes},
        edges={name: _scale([columns[name] for _, columns in everyone]) for name in edges},
    )


def _measured(
    features: ModelFeatures, parts: Sequence[tuple[EventSource, int]]
) -> list[tuple[Columns, Columns]]:
    found = []
    for source, part in parts:
        with traced(f"measuring features of {source.name}"):
            found.append(_of_part(features, source.read(part, source.parts)))
    return found


def _of_part(features: ModelFeatures, stored: Sector) -> tuple[Columns, Columns]:
    """Gives the moments of a part's own nodes and edges, by column."""
    features.computed.check_by_row(stored)
    sector = features.computed.of(stored)
    nodes, edges = lacking_scales(features.data)
    of_nodes = sector.node_features, sector.node_feature_names
    of_edges = sector.edge_features, sector.edge_feature_names
    check_finite(f"{sector.event}: node", nodes, *of_nodes, sector.node_id)
    check_finite(f"{sector.event}: edge", edges, *of_edges, sector.edge_id)
    return (
        _moments(of_nodes[0][: sector.n_owned], of_nodes[1], nodes),
        _moments(of_edges[0][sector.owns_edge], of_edges[1], edges),
    )


def _moments(features: Tensor, names: Sequence[str], chosen: Sequence[str]) -> Columns:
    return {name: moments(features[:, list(names).index(name)]) for name in chosen}


def moments(values: Tensor) -> Moments:
    """Computes the moments of values [M] in float64."""
    if not len(values):
        return Moments(0, 0.0, 0.0, math.inf, -math.inf)
    exact = values.double()
    mean = exact.mean()
    squares = (exact - mean).square().sum()
    return Moments(len(values), float(mean), float(squares), float(exact.min()), float(exact.max()))


def _scale(parts: Sequence[Moments]) -> tuple[float, float]:
    """Joins moments to a mean and a deviation (1 where all values are the same)."""
    count = sum(part.size for part in parts)
    least, largest = min(part.least for part in parts), max(part.largest for part in parts)
    if least >= largest:
        return (least if count else 0.0), 1.0
    mean = math.fsum(part.size * part.mean for part in parts) / count
    squares = math.fsum(part.squares + part.size * (part.mean - mean) ** 2 for part in parts)
    deviation = float(f"{math.sqrt(squares / count):.{_DIGITS}g}")
    return round(mean / deviation, _DIGITS) * deviation, deviation
