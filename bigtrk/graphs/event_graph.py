"""An event as a graph: hits are nodes, doublets are edges.

Shapes used throughout: N nodes, E edges, F node features, G edge features, P particles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch_geometric.data import Data


# Here and in sectors == is identity: that of tensors is no truth value.
@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
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

    def take_edges(self, rows: Tensor) -> "EventGraph":
        """Returns the graph with some of its edges: rows, int64 or a mask [E]."""
        return replace(
            self,
            edge_index=self.edge_index[:, rows],
            edge_features=self.edge_features[rows],
            y=None if self.y is None else self.y[rows],
        )

    @classmethod
    def from_pyg(
        cls,
        data: "Data",
        name: str | None = None,
        node_feature_names: Sequence[str] = (),
        edge_feature_names: Sequence[str] = (),
    ) -> "EventGraph":
        """Makes a graph of PyTorch Geometric's Data: x [N, F], edge_index [2, E] int64 and, where
        they are known, edge_attr [E, G], y [E] (of edges: 0 or 1), hit_id, particle_id, hit_weight,
        modules and particles, as `to_pyg` gives them. It shares their tensors.

        The graph is called `name`, or else data.name. Columns have the names given, or else those
        in data.node_feature_names and data.edge_feature_names, or else x0, x1, ... and e0, e1, ...
        Features of other floating types are rounded to float32 and other attributes left out;
        labels become bool. Warnings on stderr say this, and where edges are there in both
        directions or columns called r, phi or z cannot be in mm or rad.

        Raises:
            InputError: an attribute is missing, of another type or shape, or not finite, edges end
                outside of the nodes, or y labels nodes.
        """
        # pyg_data.py makes graphs of this module.
        from bigtrk.graphs.pyg_data import from_data

        return from_data(data, name, node_feature_names, edge_feature_names)

    def to_pyg(self) -> "Data":
        """Returns the graph as PyTorch Geometric's Data, which `from_pyg` reads back bit for bit:
        x [N, F], edge_index [2, E], edge_attr [E, G] (if there are edge features), y [E], labels of
        hits and particles where they are known, and the names of the event and of columns. It
        shares the graph's tensors.
        """
        from bigtrk.graphs.pyg_data import to_data

        return to_data(self)
