"""An event as a graph: hits are nodes, doublets are edges.

Shapes used throughout: N nodes, E edges, F node features, G edge features, P particles.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ParticleTable:
    """The particles of one event.

    particle_id [P] int64, pt [P] float32 (GeV), eta [P] float32, vertex [P, 3] float32 (mm),
    nhits [P] int64 (hits of the particle in this event, in the graph or not).
    """

    particle_id: Tensor
    pt: Tensor
    eta: Tensor
    vertex: Tensor
    nhits: Tensor

    def rows_of(self, particle_id: Tensor) -> Tensor:
        """Returns the row of each id, -1 where the table lacks it: [M] int64 -> [M] int64."""
        if self.particle_id.numel() == 0:
            return torch.full_like(particle_id, -1)
        order = self.particle_id.argsort()
        position = torch.searchsorted(self.particle_id[order], particle_id)
        row = order[position.clamp(max=len(order) - 1)]
        return torch.where(self.particle_id[row] == particle_id, row, -1)


@dataclass(frozen=True)
class EventGraph:
    """One event's graph. Features are in mm and rad, not normalised.

    node_features [N, F] float32, edge_features [E, G] float32, in the order of their names.
    edge_index [2, E] int64: row 0 the inner hit (source), row 1 the outer hit (destination).
    y [E] bool: the edge joins consecutive hits of one particle.
    hit_id [N] int64, particle_id [N] int64 (0: noise), hit_weight [N] float64 (TrackML weight),
    modules [N, 3] int64 (volume, layer and module of the hit).
    A field that the source of the graph does not know is None.
    """

    name: str
    node_feature_names: tuple[str, ...]
    edge_feature_names: tuple[str, ...]
    node_features: Tensor
    edge_index: Tensor
    edge_features: Tensor
    y: Tensor | None = None
    hit_id: Tensor | None = None
    particle_id: Tensor | None = None
    hit_weight: Tensor | None = None
    modules: Tensor | None = None
    particles: ParticleTable | None = None

    @property
    def n_nodes(self) -> int:
        return self.node_features.shape[0]

    @property
    def n_edges(self) -> int:
        return self.edge_index.shape[1]
