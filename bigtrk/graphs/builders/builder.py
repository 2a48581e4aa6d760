"""Graph builders, which choose the doublets that become edges, and the graphs made from them."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bigtrk.events.event import Event
from bigtrk.events.truth import (
    hit_particles,
    hit_weights,
    module_ids,
    overlap_edges,
    particle_kinematics,
    true_edges,
)
from bigtrk.graphs.builders.window_learning import TARGET_HITS, is_target
from bigtrk.graphs.builders.windows import Windows, build_doublets
from bigtrk.graphs.event_graph import (
    AT_A_TIME,
    EventGraph,
    ParticleTable,
    Target,
    edge_order,
    target_edges,
)
from bigtrk.graphs.features import (
    EDGE_FEATURES,
    Floats,
    Ints,
    as_tensor,
    cluster_columns,
    edge_table,
    hit_coordinates,
)

# A graph should hold the edges of these particles, by which a track finder is judged.
TARGET_PT = 1.0  # GeV
TARGET = Target(pt_min=TARGET_PT, hits_min=TARGET_HITS)


def event_graph(event: Event, doublets: Ints, true: Ints | None) -> EventGraph:
    """Makes an event's graph: every hit is a node, every pair in `doublets` [2, E] an edge, sorted
    by (destination, source). true: the event's true edges [2, T]; None without truth.
    """
    features, hit_id = hit_columns(event), event.hits["hit_id"].astype(np.int64)
    order = edge_order(torch.from_numpy(doublets), len(hit_id)).numpy()
    edges = np.take(doublets, order, axis=1)
    del doublets, order  # as large as the edges, and not used again
    graph = EventGraph(
        name=event.name,
        node_feature_names=tuple(features),
        edge_feature_names=EDGE_FEATURES,
        node_features=as_tensor(features),
        edge_index=torch.from_numpy(edges),
        edge_features=edge_table(features, edges),
        hit_id=torch.from_numpy(hit_id),
        modules=torch.from_numpy(module_ids(event.hits)),
    )
    if true is None:
        return graph
    weight = hit_weights(event)
    return replace(
        graph,
        y=torch.from_numpy(are_true(edges, true, len(hit_id))),
        particle_id=torch.from_numpy(hit_particles(event)),
        hit_weight=None if weight is None else torch.from_numpy(weight),
        particles=_particle_table(event),
    )


def hit_columns(event: Event) -> dict[str, Floats]:
    """Returns an event's hit features by name, each [N], with cluster features if it has cells."""
    columns = hit_coordinates(event.hits)
    if event.cells is None:
        return columns
    return columns | cluster_columns(event.hits["hit_id"].astype(np.int64), event.cells)


def shares(
    found: int, found_target: int, n_edges: int, true: int, target: int
) -> dict[str, float | None]:
    """Computes the values of QUALITY from counts of edges; None where a denominator is 0."""
    return {
        "true_edges": true,
        "target_edges": target,
        "edge_efficiency": found / true if true else None,
        "target_efficiency": found_target / target if target else None,
        "purity": found / n_edges if n_edges else None,
        "target_purity": found_target / n_edges if n_edges else None,
    }


QUALITY = (*shares(0, 0, 0, 0, 0),)  # the names


def quality_of(graph: EventGraph, true: int, target: int) -> dict[str, float | None]:
    """Computes the values of QUALITY for a graph with truth and particles. true, target: numbers of
    the event's true edges, and of those in TARGET. A repeated or reversed edge counts once.
    """
    assert graph.y is not None
    key = graph.edge_index[0] * graph.n_nodes + graph.edge_index[1]
    first = np.unique(key.numpy(), return_index=True)[1]
    y, edges = graph.y[first], graph.edge_index[:, first]
    wanted = target_edges(y, edges, graph.particle_id, graph.particles, TARGET)
    return shares(int(y.sum()), int(wanted.sum()), len(y), true, target)


def are_true(edges: Ints, true: Ints, n_hits: int) -> NDArray[np.bool_]:
    """Marks the edges [2, E] of hit rows that are among the true edges [2, T]: [E]."""
    n_edges = edges.shape[1]
    wanted = np.unique(true[1] * n_hits + true[0])
    found = np.zeros(n_edges, dtype=bool)
    if not len(wanted):
        return found
    for start in range(0, n_edges, AT_A_TIME):
        some = slice(start, start + AT_A_TIME)
        key = edges[1, some] * n_hits + edges[0, some]
        place = np.minimum(np.searchsorted(wanted, key), len(wanted) - 1)
        found[some] = wanted[place] == key
    return found


def _particle_table(event: Event) -> ParticleTable:
    columns = {name: torch.from_numpy(c) for name, c in particle_kinematics(event).items()}
    return ParticleTable(
        particle_id=columns["particle_id"],
        pt=columns["pt"].float(),
        eta=columns["eta"].float(),
        vertex=torch.stack([columns[name] for name in ("vx", "vy", "vz")], dim=1).float(),
        nhits=columns["nhits"],
    )


class GraphBuilder(Protocol):
    """Chooses the doublets of a graph. parameters: the choices that determine them, for records."""

    @property
    def parameters(self) -> dict[str, Any]: ...

    def doublets(self, event: Event) -> Ints:
        """Returns the doublets as pairs of hit rows, inner then outer: [2, E]."""

    def true(self, event: Event) -> Ints:
        """Returns the true edges [2, T] of an event with truth."""


@dataclass(frozen=True)
class WindowBuilder:
    """Selects the doublets between layers that pass windows."""

    windows: Windows

    @property
    def parameters(self) -> dict[str, Any]:
        return {"windows": self.windows.digest()}

    def doublets(self, event: Event) -> Ints:
        return build_doublets(event.hits, self.windows)

    def true(self, event: Event) -> Ints:
        return true_edges(event)


@dataclass(frozen=True)
class TrueEdgeBuilder:
    """Selects the true edges only, with those in one layer, for the training of an embedding."""

    parameters: ClassVar[dict[str, Any]] = {"edges": "true"}

    def doublets(self, event: Event) -> Ints:
        return self.true(event)

    def true(self, event: Event) -> Ints:
        return np.concatenate([true_edges(event), overlap_edges(event)], axis=1)


def build_graph(event: Event, builder: GraphBuilder) -> EventGraph:
    """Builds an event's graph; it has no labels if the event has no truth."""
    return build_with_record(event, builder)[0]


def build_with_record(event: Event, builder: GraphBuilder) -> tuple[EventGraph, dict[str, Any]]:
    """Builds an event's graph and its record: counts, quality and the builder's parameters."""
    true = None if event.truth is None else builder.true(event)
    graph = event_graph(event, builder.doublets(event), true)
    quality: dict[str, Any] = dict.fromkeys(QUALITY)
    if true is not None and graph.y is not None:
        target = is_target(event, TARGET_PT)
        found_target = graph.y & torch.from_numpy(target)[graph.edge_index[0]]
        found = int(graph.y.sum()), int(found_target.sum())
        quality = shares(*found, graph.n_edges, true.shape[1], int(target[true[0]].sum()))
    sizes = {"nodes": graph.n_nodes, "edges": graph.n_edges}
    return graph, {**sizes, **quality, **builder.parameters}
