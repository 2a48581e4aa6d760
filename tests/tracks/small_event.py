"""A hand-made whole event for tests of tracks and their edges."""

from collections.abc import Sequence

import torch

from bigtrk.graphs.event_graph import EventGraph, ParticleTable, Sector, whole_sector


def small_event(
    particle_of_hit: Sequence[int],
    edges: Sequence[tuple[int, int, bool]],
    pt: dict[int, float],
    eta: dict[int, float] | None = None,
    hit_eta: Sequence[float] | None = None,
    lost_hits: int = 0,
) -> Sector:
    """Hits lie on a line, the first innermost. Edges are (inner hit, outer hit, whether true),
    ascending by (outer, inner); particles are those of `pt` (GeV), each with `lost_hits` more hits
    in the event than in the graph.
    """
    ends = torch.tensor([(a, b) for a, b, _ in edges], dtype=torch.int64).reshape(-1, 2).T
    ids = list(pt)
    known_eta = eta or dict.fromkeys(ids, 0.0)
    column = [0.0] * len(particle_of_hit) if hit_eta is None else hit_eta
    return whole_sector(
        EventGraph(
            name="small",
            node_feature_names=("r", "phi", "z", "eta"),
            edge_feature_names=(),
            node_features=torch.tensor(
                [(1.0 + i, 0.0, 0.0, x) for i, x in enumerate(column)]
            ).reshape(-1, 4),
            edge_index=ends,
            edge_features=torch.zeros(len(edges), 0),
            y=torch.tensor([true for _, _, true in edges], dtype=torch.bool),
            hit_id=torch.arange(len(particle_of_hit)),
            particle_id=torch.tensor(particle_of_hit, dtype=torch.int64),
            particles=ParticleTable(
                torch.tensor(ids, dtype=torch.int64),
                torch.tensor(list(pt.values())),
                torch.tensor([known_eta[x] for x in ids]),
                torch.zeros(len(ids), 3),
                torch.tensor([list(particle_of_hit).count(x) + lost_hits for x in ids]),
            ),
        )
    )
