"""The state that a pass of the Interaction GNN hands to its layers.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from bigtrk.models.layers.chunked_mlp import Activation
from bigtrk.models.layers.edge_states import EdgeStates
from bigtrk.models.layers.encoding import Encoded
from bigtrk.models.layers.workspace import Workspace


@dataclass(frozen=True)
class GraphPass:
    """Holds what all layers of a forward pass share.

    edge_index: [2, E]. nodes: the encoded features, if each layer reads them.
    """

    edge_index: Tensor
    n_owned: int
    work: Workspace
    nodes: Encoded | None
    edges: EdgeStates


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
