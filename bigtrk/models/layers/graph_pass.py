"""The state that a pass of the Interaction GNN hands to its layers.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from bigtrk.models.layers.chunked_mlp import Activation
from bigtrk.models.layers.edge_states import EdgeStates
from bigtrk.models.layers.encoding import Encoded
from bigtrk.models.layers.halo_rows import HaloRows
from bigtrk.models.layers.workspace import Workspace


@dataclass(frozen=True)
class GraphPass:
    """Holds what all layers of a forward pass share.

    edge_index: [2, E]. nodes: the encoded features, if each layer reads them. halo: the rows that
    other sectors give.
    """

    edge_index: Tensor
    n_owned: int
    work: Workspace
    nodes: Encoded | None
    edges: EdgeStates
    halo: HaloRows = field(default_factory=HaloRows)

    @cached_property
    def n_interior(self) -> int:
        """Counts the first edges before one that reads a halo node."""
        reads_halo = (self.edge_index >= self.n_owned).any(dim=0).nonzero()
        return int(reads_halo[0]) if len(reads_halo) else self.edge_index.shape[1]


@dataclass(frozen=True)
class Layer:
    """Layer `i` in its pass. edge, head, node: the activations of its MLPs, of the edges, of the
    decoder, which only the last layer has, and of the nodes, which the last one does not update.
    in_out: incoming and outgoing edges are summed separately.
    """

    graph: GraphPass
    i: int
    edge: Sequence[Activation]
    head: Sequence[Activation]
    node: Sequence[Activation]
    in_out: bool
