"""Measures the training data: scales of features that have none, and node degrees.

Each node and edge counts once, in the part of its event that owns it, so neither the ranks nor the
cuts of events change a measured scale.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.errors import InputError, one_line
from bigtrk.graphs.event_graph import Sector
from bigtrk.graphs.features import SCALES, check_finite
from bigtrk.models.settings import PyGConfig
from bigtrk.parallel.collectives import gather_items, on_first_rank, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run import MeasuredScales
from bigtrk.tracing import traced
from bigtrk.training.data.batch import ModelFeatures, load_features
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration, DataSettings


def with_degrees(configuration: Configuration, events: Sequence[EventSource]) -> Configuration:
    """Returns the configuration, with the `degree_histogram` of `events` in `model.options` if the
    network asks for it. Collective. InputError if its class or an event cannot be read.
    """
    model = configuration.model
    if not isinstance(model, PyGConfig) or not together(model.lacks_degrees):
        return configuration
    counted = on_first_rank(degree_histogram, events)
    options = {**model.options, "degree_histogram": counted}
    model = model.model_copy(update={"options": options})
    return configuration.model_copy(update={"model": model})


def degree_histogram(events: Sequence[EventSource]) -> list[int]:
    """Returns the number of nodes, over all events, with 0, 1, 2, ... incoming edges."""
    total = Counter[int]()
    for event in events:
        for part in range(event.parts):
            sector = event.read(part, event.parts)
            degrees = torch.bincount(sector.edge_index[1], minlength=sector.n_nodes)
            counts = torch.bincount(degrees[: sector.n_owned]).tolist()
            total.update(dict(enumerate(counts)))
    return [total[degree] for degree in range(max(total, default=0) + 1)]


def lacking_scales(data: DataSettings) -> tuple[list[str], list[str]]:
    """Lists the node features and the edge features whose scales must be measured."""
    nodes, edges = (
        [name for name in dict.fromkeys(chosen) if name not in SCALES]
        for chosen in (data.node_features, data.edge_features)
    )
    return nodes, edges


def check_measured(where: str, data: DataSettings, measured: MeasuredScales) -> None:
    """Raises InputError unless `measured` has scales for exactly the features that need one."""
    for wanted, scales in zip(lacking_scales(data), (measured.nodes, measured.edges), strict=True):
        for name in {**dict.fromkeys(wanted), **scales}:
            if (name in wanted) != (name in scales):
                wrong = (
                    f"needs no mean and deviation, but has {scales[name]}"
                    if name in scales
                    else "needs a mean and deviation, but has none"
                )
                raise InputError(
                    f"{where}: measured: feature {one_line(repr(name))} {wrong}; train again"
                )


# A sum of parts rounds differently from a sum of all values, by 1e-16. Scales are rounded to
# this number of digits, so that they are the same to the last bit for any cuts and ranks.
_DIGITS = 9


class Moments(NamedTuple):
    """Statistics of values: number, mean, sum of squared deviations, least and largest value."""

    size: int
    mean: float
    squares: float
    least: float
    largest: float


Columns = dict[str, Moments]


def measure_scales(
    data: DataSettings, sources: Sequence[EventSource], ranks: Ranks
) -> MeasuredScales:
    """Returns mean and deviation of the features without a scale, over the owned nodes and edges of
    all `sources`; the ranks share the work. Collective. Raises InputError on all ranks if an event
    lacks a column, a value is not finite, or a user's function breaks its promises
    (graphs/features.py).
    """
    nodes, edges = lacking_scales(data)
    if not nodes and not edges:
        return MeasuredScales()
    parts = [(source, part) for source in sources for part in range(source.parts)]

    def measured() -> list[tuple[Columns, Columns]]:
        features, found = load_features(data), []
        for source, part in parts[ranks.rank :: ranks.world_size]:
            with traced(f"measuring features of {source.name}"):
                found.append(_part_moments(features, source.read(part, source.parts)))
        return found

    everyone = [one for of_rank in gather_items(together(measured)) for one in of_rank]
    return MeasuredScales(
        nodes={name: _scale([columns[name] for columns, _ in everyone]) for name in nodes},
        edges={name: _scale([columns[name] for _, columns in everyone]) for name in edges},
    )


def _part_moments(features: ModelFeatures, stored: Sector) -> tuple[Columns, Columns]:
    """Returns the moments of the nodes and of the edges that a part owns, by feature."""
    features.computed.check_by_row(stored)
    sector = features.computed.of(stored)
    nodes, edges = lacking_scales(features.data)
    node_names, edge_names = sector.node_feature_names, sector.edge_feature_names
    check_finite(f"{sector.event}: node", nodes, sector.node_features, node_names, sector.node_id)
    check_finite(f"{sector.event}: edge", edges, sector.edge_features, edge_names, sector.edge_id)
    of_nodes = sector.node_features[: sector.n_owned]
    of_edges = sector.edge_features[sector.owns_edge]
    return (
        {name: moments(of_nodes[:, node_names.index(name)]) for name in nodes},
        {name: moments(of_edges[:, edge_names.index(name)]) for name in edges},
    )


def moments(values: Tensor) -> Moments:
    """Computes the moments of values [M], in float64."""
    if not len(values):
        return Moments(0, 0.0, 0.0, math.inf, -math.inf)
    exact = values.double()
    mean = exact.mean()
    squares = (exact - mean).square().sum()
    return Moments(len(values), float(mean), float(squares), float(exact.min()), float(exact.max()))


def _scale(parts: Sequence[Moments]) -> tuple[float, float]:
    """Combines the moments of all parts into mean and deviation (1 if all values are the same)."""
    count = sum(part.size for part in parts)
    least, largest = min(part.least for part in parts), max(part.largest for part in parts)
    if least >= largest:
        return (least if count else 0.0), 1.0
    mean = math.fsum(part.size * part.mean for part in parts) / count
    squares = math.fsum(part.squares + part.size * (part.mean - mean) ** 2 for part in parts)
    deviation = float(f"{math.sqrt(squares / count):.{_DIGITS}g}")
    return round(mean / deviation, _DIGITS) * deviation, deviation
