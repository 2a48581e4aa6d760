"""GCNConv in sectors: Kipf and Welling, "Semi-supervised classification with graph convolutional
networks" (2017).

It divides the message of an edge by the square roots of the degrees of both ends. A sector has all
edges of its owned nodes, and so knows their degrees; the halo's come from its owners. The stock
layer then runs with `normalize=False` on edges weighted here.

Shapes: N nodes, E edges.
"""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import add_remaining_self_loops, scatter

from bigtrk.models.protocol import ContractError

Weighted = tuple[Tensor, Tensor]  # edge_index [2, E], edge_weight [E]


def take_degrees(net: nn.Module) -> Collection[GCNConv]:
    """Lets the layers GCNConv of `net` be weighted by `WholeDegrees`, and returns them."""
    convs: list[Any] = [module for module in net.modules() if type(module) is GCNConv]
    layers = [conv for conv in convs if conv.normalize]
    for layer in layers:
        layer.normalize = False
    return layers


class WholeDegrees:
    """The weights of edges by the degrees of the whole graph, in one pass over a sector.

    fresh: replaces the halo's rows [N, 1] by their owners'. Layers that read the same edges share
    one exchange.
    """

    def __init__(self, fresh: Callable[[Tensor], Tensor]) -> None:
        self._fresh = fresh
        # Read inputs stay referenced, so that no other tensor takes the identity of one.
        self._known: dict[tuple[object, ...], tuple[Weighted, object]] = {}

    def weigh(self, layer: GCNConv, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Replaces the inputs of `layer` (x, edge_index, edge_weight) by weighted edges'."""
        x, edge_index, edge_weight = _inputs(*args, **kwargs)
        if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
            raise ContractError("GCNConv: gets a sparse matrix; give it edge_index [2, E]")
        options = layer.improved, layer.add_self_loops, layer.flow, x.dtype
        key = *_identity(edge_index), *_identity(edge_weight), *options
        if key not in self._known:
            made = self._weighted(layer, x, edge_index, edge_weight)
            self._known[key] = made, (edge_index, edge_weight)
        return (x, *self._known[key][0]), {}

    def _weighted(
        self, layer: GCNConv, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None
    ) -> Weighted:
        if layer.add_self_loops:
            loop = 2.0 if layer.improved else 1.0
            edge_index, edge_weight = add_remaining_self_loops(
                edge_index, edge_weight, loop, len(x)
            )
        if edge_weight is None:
            edge_weight = x.new_ones(edge_index.shape[1])
        end = 1 if layer.flow == "source_to_target" else 0
        degree = scatter(edge_weight, edge_index[end], 0, len(x), "sum")
        degree = self._fresh(degree[:, None])[:, 0]
        scale = degree.pow(-0.5)
        scale = scale.masked_fill(scale == torch.inf, 0.0)
        return edge_index, scale[edge_index[0]] * edge_weight * scale[edge_index[1]]


def _inputs(
    x: Tensor, edge_index: Any, edge_weight: Tensor | None = None
) -> tuple[Tensor, Any, Tensor | None]:
    return x, edge_index, edge_weight


def _identity(read: Tensor | None) -> tuple[int, int]:
    """Tells tensors apart, and one from itself after it was changed in place."""
    return id(read), 0 if read is None else read._version
