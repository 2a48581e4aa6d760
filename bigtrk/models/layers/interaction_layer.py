"""The modules that hold the weights of a layer and of the decoder.

Shapes: N nodes of which the first n_owned are owned, E edges, H = hidden.
"""

import torch
from torch import Tensor

from bigtrk.models.layers.chunked_mlp import Activation
from bigtrk.models.layers.graph_pass import GraphPass, Layer
from bigtrk.models.layers.interaction import Interact
from bigtrk.models.layers.mlp import Perceptrons, activations


class EdgeDecoder(Perceptrons):
    """Maps an edge's last state to its logit and, with a head for it, the log of its pT.

    It is computed with the last layer, whose edges then need not be kept, which saves a tensor of
    all edges and two passes over it.
    """

    def __init__(self, hidden: int, layers: int, pt_head: bool) -> None:
        super().__init__()
        self._pt_head = pt_head
        self.activations: list[Activation] = [*activations(layers), "norm", "linear"]
        self.add_mlp("mlp", hidden, hidden, layers)
        self.add_linear("transform", hidden, hidden)
        self.add_linear("output", hidden, 1)
        if pt_head:
            self.add_linear("pt", hidden, 1)

    def weights(self, prefix: str = "") -> list[Tensor]:
        """Joins both heads, which have the same input, into one linear layer."""
        weights = super().weights(prefix)
        if not self._pt_head:
            return weights
        *shared, weight, bias, pt_weight, pt_bias = weights
        return [*shared, torch.cat([weight, pt_weight]), torch.cat([bias, pt_bias])]

    def forward(
        self,
        layer: "InteractionLayer",
        i: int,
        graphs: list[GraphPass],
        nodes: list[Tensor],
        edges: list[Tensor],
    ) -> list[Tensor]:
        """Decodes nodes [N, H] and edges [E, H], not yet updated by `layer`, the i-th: logits [E]
        of each sector, or logits and log pT [E, 2].
        """
        made: list[Tensor] = layer(i, graphs, nodes, edges, self)[1]
        return made if self._pt_head else [logits.squeeze(-1) for logits in made]


class InteractionLayer(Perceptrons):
    """Updates all edges, then, unless it is the last layer, the owned nodes."""

    def __init__(
        self, hidden: int, layers: int, *, concatenate: bool, in_out: bool, has_node_update: bool
    ) -> None:
        super().__init__()
        parts, sums = (2 if concatenate else 1), (2 if in_out else 1)
        self.activations, self._in_out = activations(layers), in_out
        self.add_mlp("edge_mlp", 3 * parts * hidden, hidden, layers)
        if has_node_update:
            self.add_mlp("node_mlp", (sums + parts) * hidden, hidden, layers)

    def forward(
        self,
        i: int,
        graphs: list[GraphPass],
        nodes: list[Tensor],
        edges: list[Tensor],
        head: EdgeDecoder | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Runs as the i-th layer on each sector: nodes [N, H] and edges [E, H] -> owned nodes
        [n_owned, H] and edges [E, H]; with a `head` no nodes, and its results for edges [E, 1 or
        2].
        """
        weights = self.weights("edge_mlp")
        weights += self.weights("node_mlp") if head is None else head.weights()
        of_head = [] if head is None else head.activations
        of_nodes = self.activations if head is None else []
        updated, made = [], []
        for graph, x, e in zip(graphs, nodes, edges, strict=True):
            layer = Layer(graph, i, self.activations, of_head, of_nodes, self._in_out)
            of_edges, owned = Interact.apply(layer, e, x, *weights)
            made.append(of_edges)
            updated.append(owned)
        return ([] if head else updated), made
