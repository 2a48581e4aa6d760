"""A graph of bigtrk in acorn's columns, by their newer names.

Shapes: N hits, E edges, T true edges.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.event import NOISE, Event
from bigtrk.events.truth import true_edges
from bigtrk.formats.acorn.graphs.names import EDGES, HITS, PARTICLE, TRUE_MAP
from bigtrk.formats.acorn.graphs.names import TRUE_EDGES_OF, VERTEX
from bigtrk.graphs.coordinates import Ints
from bigtrk.graphs.event_graph import EventGraph, ParticleTable

_TRUTH = "build the graph from events with truth, as acorn's stages ask for it"


def own_columns(graph: EventGraph) -> dict[str, Any]:
    """Returns acorn's columns of a graph that is not from acorn: mm, rad and GeV.

    True edges are those of the particles' hits that are consecutive, in the graph or not, as far as
    it knows modules, by which layers are told apart; else only those in the graph.

    Raises:
        InputError: the graph knows no ids, truth or particles of its hits, or not where they are.
    """
    for name in ("hit_id", "y", "particle_id", "particles"):
        if getattr(graph, name) is None:
            raise InputError(f"{graph.name}: knows no {name}; {_TRUTH}")
    true = _true_edges(graph)
    return {
        **_hit_columns(graph),
        "edge_index": graph.edge_index,
        f"{EDGES}y": graph.y,
        TRUE_EDGES_OF: torch.from_numpy(true),
        TRUE_MAP: torch.from_numpy(_edge_of(true, graph)),
        **_particle_columns(graph, true),
        "config": [{"model": "bigtrk", "stage": "data_reading"}],
    }


def _hit_columns(graph: EventGraph) -> dict[str, Tensor]:
    names = graph.node_feature_names
    lacking = [name for name in ("r", "phi", "z", "eta") if name not in names]
    if lacking:
        raise InputError(
            f"{graph.name}: has no node feature {lacking[0]!r}; build it again with it"
        )
    columns = {HITS + name: graph.node_features[:, i].double() for i, name in enumerate(names)}
    r, phi = columns[f"{HITS}r"], columns[f"{HITS}phi"]
    columns |= {f"{HITS}x": r * phi.cos(), f"{HITS}y": r * phi.sin()}
    assert graph.hit_id is not None
    columns[f"{HITS}id"] = graph.hit_id
    if graph.hit_weight is not None:
        columns[f"{HITS}weight"] = graph.hit_weight
    if graph.modules is not None:
        for column, name in enumerate(("volume_id", "layer_id", "module_id")):
            columns[HITS + name] = graph.modules[:, column].contiguous()
    return columns


def _true_edges(graph: EventGraph) -> Ints:
    """Returns the pairs of hits that are consecutive on a particle [2, T]."""
    assert graph.y is not None
    if graph.modules is None:
        known: Ints = graph.edge_index[:, graph.y].numpy()
        return known
    return true_edges(_as_event(graph))


def _as_event(graph: EventGraph) -> Event:
    """Returns the event of a graph, as far as true edges ask for it."""
    columns = {name: column.numpy() for name, column in _hit_columns(graph).items()}
    hits = {name: columns[HITS + name] for name in ("x", "y", "z")}
    modules = {name: columns[f"{HITS}{name}_id"] for name in ("volume", "layer", "module")}
    hit_id = np.arange(graph.n_nodes)  # ids of a graph from elsewhere may repeat
    assert graph.particle_id is not None
    assert graph.particles is not None
    vertex = graph.particles.vertex.double().numpy()
    return Event(
        graph.name,
        hits={"hit_id": hit_id, **hits, **{f"{name}_id": one for name, one in modules.items()}},
        truth={"hit_id": hit_id, "particle_id": graph.particle_id.numpy()},
        particles={
            "particle_id": graph.particles.particle_id.numpy(),
            **{f"v{axis}": vertex[:, i] for i, axis in enumerate("xyz")},
        },
    )


def _edge_of(true: Ints, graph: EventGraph) -> Ints:
    """Returns the edge of the graph that each true edge is [T], -1 where it has none; the last
    where an edge is repeated, as acorn counts.
    """
    source, destination = graph.edge_index.numpy()
    key, wanted = source * graph.n_nodes + destination, true[0] * graph.n_nodes + true[1]
    order = np.argsort(key, kind="stable")
    place = np.searchsorted(key[order], wanted, side="right") - 1
    edge = np.append(order, -1)[place]
    return np.where(np.append(key, -1)[edge] == wanted, edge, -1)


def _particle_columns(graph: EventGraph, true: Ints) -> dict[str, Tensor]:
    """Returns what is known of the particle of each true edge [T]."""
    assert graph.particle_id is not None
    assert graph.particles is not None
    particle = graph.particle_id[torch.from_numpy(true[0])]
    table = _with_unlisted(graph.particles)
    row = graph.particles.rows_of(particle)
    vx, vy, vz = table.vertex[row].double().T
    return {
        PARTICLE: particle,
        "track_particle_pt": table.pt[row].double(),
        "track_particle_eta": table.eta[row].double(),
        "track_particle_nhits": table.nhits[row],
        "track_particle_radius": torch.hypot(vx, vy),
        **dict(zip(VERTEX, (vx, vy, vz), strict=True)),
    }


def _with_unlisted(table: ParticleTable) -> ParticleTable:
    """Appends what is known of a particle that is not listed, whose row is -1: nothing."""
    unknown = torch.tensor([torch.nan])
    return ParticleTable(
        particle_id=torch.cat([table.particle_id, torch.tensor([NOISE])]),
        pt=torch.cat([table.pt, unknown]),
        eta=torch.cat([table.eta, unknown]),
        vertex=torch.cat([table.vertex, unknown.expand(1, 3)]),
        nhits=torch.cat([table.nhits, torch.tensor([-1])]),
    )
