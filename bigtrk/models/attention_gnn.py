"""The attention network of HEP.TrkX, for a whole graph or for a sector with a halo.

Farrell et al., "Novel deep learning methods for track reconstruction" (2018), there with dense
matrices (attention_reference.py). An edge network weighs each edge by the states of its nodes, a
node network reads the weighted sums of a node's neighbours, and again; the input features stand
beside every state, and by choice the edges' beside both. The edge network at the end gives the
logits.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, F and G node and
edge features, H = hidden, D = H + F the width of a state with the input features.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from bigtrk.models.kernels.plain import accumulable
from bigtrk.models.layers.mlp import Perceptrons
from bigtrk.models.layers.neighbours import BothEnds, Neighbours, WeightedSums
from bigtrk.models.layers.recomputed import recomputed
from bigtrk.models.protocol import check_edges
from bigtrk.models.settings import AttentionGNNConfig
from bigtrk.tracing import traced


class AttentionGNN(nn.Module):
    """Classifies edges. Every parameter gets a gradient in each step, also from an empty sector."""

    def __init__(
        self, config: AttentionGNNConfig, n_node_features: int, n_edge_features: int
    ) -> None:
        super().__init__()
        self.config = config
        self.input_network = InputNetwork(config, n_node_features)
        width = config.hidden + n_node_features
        self.edge_network = EdgeNetwork(config, width, n_edge_features)
        self.node_network = NodeNetwork(config, width)

    def forward(
        self,
        x: Tensor,
        edge_features: Tensor,
        edge_index: Tensor,
        n_owned: int,
        exchange: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Logits [E], float32 at least, of x [N, F], edge_features [E, G], edge_index [2, E].

        `exchange` appends to the owned rows [n_owned, H] the halo's, as their owners have them:
        [N, H]. It runs outside of what is recomputed, so the backward pass sends nothing twice.

        Raises:
            IndexError: an edge ends outside of the N nodes.
        """
        check_edges(edge_index, len(x))
        with traced("encode"):
            graph = Neighbours(edge_index, len(x))
            state = torch.cat([self.input_network(x), x], dim=1)
        for i in range(self.config.layers):
            with traced(f"layer {i} edge"):
                logits = self.edge_network(graph, state, edge_features)
            with traced(f"layer {i} node"):
                owned = self.node_network(graph, logits, state, n_owned)
            with traced(f"layer {i} exchange"):
                state = torch.cat([exchange(owned), x], dim=1)
        with traced("decode"):
            last: Tensor = self.edge_network(graph, state, edge_features)
        return last


class _Network(Perceptrons):
    def __init__(self, config: AttentionGNNConfig) -> None:
        super().__init__()
        self._normalises, self._recomputes = config.layer_norm, config.recompute == "layer"
        self._dtype = torch.bfloat16 if config.precision == "bf16" else None

    def _activated(self, values: Tensor) -> Tensor:
        """The tanh, after LayerNorm where there is one."""
        return torch.tanh(layer_norm(values, values.shape[1:]) if self._normalises else values)

    def _compute(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """`function` of the inputs and the weights, recomputed or not."""
        weights = self.weights()
        if self._recomputes:
            return recomputed(function, inputs, weights)
        return function(*inputs, *weights)


class InputNetwork(_Network):
    """A node's first state, from its features."""

    def __init__(self, config: AttentionGNNConfig, n_node_features: int) -> None:
        super().__init__(config)
        self.add_linear("mlp_0", n_node_features, config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """X [N, F] -> [N, H]."""
        return self._activated(linear(x, *self.weights()))


class EdgeNetwork(_Network):
    """The logit of each edge, from the states of its two nodes, and its own features."""

    def __init__(self, config: AttentionGNNConfig, width: int, n_edge_features: int) -> None:
        super().__init__(config)
        self._inputs = [width, width, n_edge_features if config.edge_features else 0]
        widths = [sum(self._inputs), *[config.hidden] * (config.mlp_layers - 1), 1]
        for k in range(config.mlp_layers):
            self.add_linear(f"mlp_{k}", widths[k], widths[k + 1])

    def forward(self, graph: Neighbours, state: Tensor, edge_features: Tensor) -> Tensor:
        """States [N, D] and edge_features [E, G] -> logits [E], float32 at least."""

        def logits(state: Tensor, *weights: Tensor) -> Tensor:
            dtype = self._dtype or state.dtype
            first, bias, *others = (weight.to(dtype) for weight in weights)
            of_source, of_destination, of_edge = first.split(self._inputs, dim=1)
            # Computed per node and then gathered: nodes are 20 times fewer than edges.
            state = state.to(dtype)
            shares = linear(state, of_source, bias), linear(state, of_destination)
            values: Tensor = BothEnds.apply(graph, *shares)
            if of_edge.shape[1]:
                values = torch.addmm(values, edge_features.to(dtype), of_edge.t())
            for weight, bias in zip(others[::2], others[1::2], strict=True):
                values = linear(self._activated(values), weight, bias)
            return accumulable(values).squeeze(1)

        return self._compute(logits, state)


class NodeNetwork(_Network):
    """A node's next state, from its own and those of its neighbours, weighted by their edges."""

    def __init__(self, config: AttentionGNNConfig, width: int) -> None:
        super().__init__(config)
        self.add_mlp("mlp", 3 * width, config.hidden, config.mlp_layers)

    def forward(self, graph: Neighbours, logits: Tensor, state: Tensor, n_owned: int) -> Tensor:
        """Logits [E] and states [N, D] -> the owned nodes' states [n_owned, H]."""

        def update(logits: Tensor, state: Tensor, *weights: Tensor) -> Tensor:
            sums = WeightedSums.apply(graph, torch.sigmoid(logits), state)
            values = torch.cat([total[:n_owned] for total in (*sums, state)], dim=1)
            for weight, bias in zip(weights[::2], weights[1::2], strict=True):
                values = self._activated(linear(values, weight, bias))
            return values

        return self._compute(update, logits, state)
