"""An event's hits as a graph of doublets, and the record of how good that graph is."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bigtrk.events.event import Event
from bigtrk.events.truth import hit_particles, hit_weights, particle_kinematics, true_edges
from bigtrk.graphs.builders.doublets import build_doublets
from bigtrk.graphs.builders.window_learning import is_target
from bigtrk.graphs.builders.windows import Windows
from bigtrk.graphs.coordinates import Ints, hit_coordinates
from bigtrk.graphs.event_graph import EventGraph, ParticleTable
from bigtrk.graphs.features import EDGE_FEATURES, as_tensor, cluster_columns, edge_columns

# A graph should hold the edges of these particles, by which a track finder is judged.
TARGET_PT = 1.0  # GeV
TARGET_HITS = 3
QUALITY = (
    "true_edges",
    "target_edges",
    "edge_efficiency",
    "target_efficiency",
    "purity",
    "target_purity",
)


def build_graph(event: Event, windows: Windows) -> EventGraph:
    """Builds an event's graph: every hit is a node, every doublet that passes `windows` an edge.

    Edges are sorted by (destination, source). Without truth, y, particle_id, hit_weight and
    particles are None; a particle whose momentum is unknown has pT NaN.
    """
    return _graph(event, windows, _true_edges(event))


def build_with_record(event: Event, windows: Windows) -> tuple[EventGraph, dict[str, Any]]:
    """Builds the graph of an event, and returns with it counts and quality, None where they cannot
    be computed.

    edge_efficiency = true edges in the graph / true edges of the event; purity = true edges in the
    graph / edges; target_efficiency and target_purity likewise for true edges of particles with
    pT > 1 GeV and >= 3 hits. windows: digest of the windows.
    """
    # They ask for a sort of all hits: once for the graph and its record.
    true = _true_edges(event)
    graph = _graph(event, windows, true)
    quality = dict.fromkeys(QUALITY) if true is None else _quality(event, graph, true)
    counts = {"nodes": graph.n_nodes, "edges": graph.n_edges}
    return graph, {**counts, **quality, "windows": windows.digest()}


def _true_edges(event: Event) -> Ints | None:
    return None if event.truth is None else true_edges(event)


def _graph(event: Event, windows: Windows, true: Ints | None) -> EventGraph:
    edges = _sorted(build_doublets(event.hits, windows), len(event.hits["hit_id"]))
    nodes = hit_coordinates(event.hits)
    hit_id = event.hits["hit_id"].astype(np.int64)
    features = nodes if event.cells is None else nodes | cluster_columns(hit_id, event.cells)
    known = true is not None
    weight = hit_weights(event) if known else None
    return EventGraph(
        name=event.name,
        node_feature_names=tuple(features),
        edge_feature_names=EDGE_FEATURES,
        node_features=as_tensor(features),
        edge_index=torch.from_numpy(edges),
        edge_features=as_tensor(edge_columns(nodes, edges)),
        y=None if true is None else torch.from_numpy(_are_true(edges, true, len(hit_id))),
        hit_id=torch.from_numpy(hit_id),
        particle_id=torch.from_numpy(hit_particles(event)) if known else None,
        hit_weight=None if weight is None else torch.from_numpy(weight),
        particles=_particle_table(event) if known else None,
    )


def _quality(event: Event, graph: EventGraph, true_edge: Ints) -> dict[str, float | None]:
    assert graph.y is not None
    source = true_edge[0]
    target = is_target(event, TARGET_PT, TARGET_HITS)
    found = int(graph.y.sum())
    found_target = int((graph.y & torch.from_numpy(target)[graph.edge_index[0]]).sum())
    true, wanted = len(source), int(target[source].sum())
    return {
        "true_edges": true,
        "target_edges": wanted,
        "edge_efficiency": _ratio(found, true),
        "target_efficiency": _ratio(found_target, wanted),
        "purity": _ratio(found, graph.n_edges),
        "target_purity": _ratio(found_target, graph.n_edges),
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _sorted(edges: Ints, n_nodes: int) -> Ints:
    """Sorts edges [2, E] by (destination, source), as sectors hold them."""
    return edges[:, np.argsort(edges[1] * n_nodes + edges[0], kind="stable")]


def _are_true(edges: Ints, true: Ints, n_hits: int) -> NDArray[np.bool_]:
    """Says whether each of `edges` [2, E] is among the true ones [2, T]: [E]."""
    return np.isin(edges[1] * n_hits + edges[0], true[1] * n_hits + true[0])


def _particle_table(event: Event) -> ParticleTable:
    columns = particle_kinematics(event)
    vertex = np.stack([columns[name] for name in ("vx", "vy", "vz")], axis=1)
    return ParticleTable(
        particle_id=torch.from_numpy(columns["particle_id"]),
        pt=torch.from_numpy(columns["pt"].astype(np.float32)),
        eta=torch.from_numpy(columns["eta"].astype(np.float32)),
        vertex=torch.from_numpy(vertex.astype(np.float32)),
        nhits=torch.from_numpy(columns["nhits"]),
    )
