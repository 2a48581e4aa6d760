"""The attention network of HEP.TrkX, for a whole graph or for a sector with a halo.

Farrell et al., "Novel deep learning methods for track reconstruction" (2018), there with dense
matrices (attention_reference.py). An edge network weighs each edge by the states of its nodes, a
node network reads the weighted sums of a node's neighbours, and again; the input features stand
beside every state, and by choice the edges' beside both. The edge network at the end gives the
logits.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, F and G node and
edge features, H = hidden, D = H + F the width of a state with the input features.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

from bigtrk.models.kernels.plain import accumulable
from bigtrk.models.layers.mlp import Perceptrons
from bigtrk.models.layers.neighbours import BothEnds, Neighbours, WeightedSums
from bigtrk.models.layers.recomputed import recomputed
from bigtrk.models.options import Layers, Linears, ModelSettings, Precision, Width
from bigtrk.models.protocol import LayerCall, LayeredModel, SectorInputs
from bigtrk.tracing import traced


class AttentionGNNConfig(ModelSettings):
    """The attention network of HEP.TrkX; that of 2018 has mlp_layers 2 without layer_norm, that of
    2019 has 4 with it, and neither has edge_features.
    """

    name: Literal["attention"] = "attention"
    """The attention network of HEP.TrkX."""
    hidden: Width = 64
    """Width of a node's state."""
    layers: Layers = 8
    """Times that the edge network weighs the edges and the node network reads their weighted sums;
    both have one set of weights."""
    mlp_layers: Linears = 2
    """Linear layers of each network."""
    layer_norm: bool = True
    """LayerNorm before each activation."""
    edge_features: bool = True
    """The edge network reads them beside the states of the nodes, which are all that HEP.TrkX's
    reads."""
    recompute: Literal["none", "layer"] = "layer"
    """What the backward pass computes anew: `none` of the networks, or in each `layer` both, from
    the nodes' states and one number per edge."""
    precision: Precision = "fp32"
    """`bf16` computes the edge network in bfloat16; weights, nodes and sums stay float32."""

    def build(
        self,
        n_node_features: int,
        n_edge_features: int,
        pt_head: bool,  # noqa: ARG002
    ) -> "AttentionGNN":
        return AttentionGNN(self, n_node_features, n_edge_features)


@dataclass(frozen=True)
class _Graph:
    """A sector as the networks read it: its edges, x [N, F] and the number of owned nodes."""

    neighbours: Neighbours
    x: Tensor
    n_owned: int


class AttentionGNN(LayeredModel[_Graph]):
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

    def layer_calls(self) -> Sequence[LayerCall[_Graph]]:
        """Gives the layer of both networks, as often as the configuration says."""
        return [partial(self._layer, i) for i in range(self.config.layers)]

    def encode(
        self, sectors: list[SectorInputs]
    ) -> tuple[list[_Graph], list[Tensor], list[Tensor]]:
        """Computes the nodes' first states; edges stay their features from layer to layer."""
        graphs = [
            _Graph(Neighbours(sector.edge_index, len(sector.x)), sector.x, sector.n_owned)
            for sector in sectors
        ]
        nodes = self.input_network([sector.x for sector in sectors])
        return graphs, nodes, [sector.edge_features for sector in sectors]

    def _layer(
        self, i: int, graphs: list[_Graph], nodes: list[Tensor], edges: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        states = _states(graphs, nodes)
        with traced(f"layer {i} edge"):
            logits = self.edge_network(_neighbours(graphs), states, edges)
        with traced(f"layer {i} node"):
            return self.node_network(graphs, logits, states), edges

    def decode(
        self, graphs: list[_Graph], nodes: list[Tensor], edges: list[Tensor]
    ) -> list[Tensor]:
        """Computes the logits [E] of each sector, float32 at least."""
        logits: list[Tensor] = self.edge_network(_neighbours(graphs), _states(graphs, nodes), edges)
        return logits


def _states(graphs: list[_Graph], nodes: list[Tensor]) -> list[Tensor]:
    """Puts their input features beside the nodes [N, H]: [N, D]."""
    pairs = zip(graphs, nodes, strict=True)
    return [torch.cat([rows, graph.x], dim=1) for graph, rows in pairs]


def _neighbours(graphs: list[_Graph]) -> list[Neighbours]:
    return [graph.neighbours for graph in graphs]


class _Network(Perceptrons):
    def __init__(self, config: AttentionGNNConfig) -> None:
        super().__init__()
        self._normalises, self._recomputes = config.layer_norm, config.recompute == "layer"
        self._dtype = torch.bfloat16 if config.precision == "bf16" else None

    def _activated(self, values: Tensor) -> Tensor:
        """Applies tanh, after LayerNorm where there is one."""
        return torch.tanh(layer_norm(values, values.shape[1:]) if self._normalises else values)

    def _compute(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Computes `function` of the inputs and the weights, recomputed or not."""
        weights = self.weights()
        if self._recomputes:
            return recomputed(function, inputs, weights)
        return function(*inputs, *weights)


class InputNetwork(_Network):
    """A node's first state, from its features."""

    def __init__(self, config: AttentionGNNConfig, n_node_features: int) -> None:
        super().__init__(config)
        self.add_linear("mlp_0", n_node_features, config.hidden)

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Maps features [N, F] of each sector to [N, H]."""
        weights = self.weights()
        return [self._activated(linear(x, *weights)) for x in features]


class EdgeNetwork(_Network):
    """The logit of each edge, from the states of its two nodes, and its own features."""

    def __init__(self, config: AttentionGNNConfig, width: int, n_edge_features: int) -> None:
        super().__init__(config)
        self._inputs = [width, width, n_edge_features if config.edge_features else 0]
        widths = [sum(self._inputs), *[config.hidden] * (config.mlp_layers - 1), 1]
        for k in range(config.mlp_layers):
            self.add_linear(f"mlp_{k}", widths[k], widths[k + 1])

    def forward(
        self, graphs: list[Neighbours], states: list[Tensor], edges: list[Tensor]
    ) -> list[Tensor]:
        """Computes the logits [E] of each sector from states [N, D] and edge features [E, G].

        They are float32 at least.
        """
        sectors = zip(graphs, states, edges, strict=True)
        return [self._logits(*sector) for sector in sectors]

    def _logits(self, graph: Neighbours, state: Tensor, edge_features: Tensor) -> Tensor:
        def logits(state: Tensor, *weights: Tensor) -> Tensor:
            dtype = self._dtype or state.dtype
            first, bias, *others = (weight.to(dtype) for weight in weights)
            of_source, of_destination, of_edge = first.split(self._inputs, dim=1)
            # These are computed per node and then gathered: nodes are 20 times fewer than edges.
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

    def forward(
        self, graphs: list[_Graph], logits: list[Tensor], states: list[Tensor]
    ) -> list[Tensor]:
        """Maps logits [E], states [N, D] of each sector to its owned nodes' states [n_owned, H]."""
        sectors = zip(graphs, logits, states, strict=True)
        return [self._update(*sector) for sector in sectors]

    def _update(self, graph: _Graph, logits: Tensor, state: Tensor) -> Tensor:
        def update(logits: Tensor, state: Tensor, *weights: Tensor) -> Tensor:
            sums = WeightedSums.apply(graph.neighbours, torch.sigmoid(logits), state)
            values = torch.cat([total[: graph.n_owned] for total in (*sums, state)], dim=1)
            for weight, bias in zip(weights[::2], weights[1::2], strict=True):
                values = self._activated(linear(values, weight, bias))
            return values

        return self._compute(update, logits, state)
