"""A network of stock PyG layers on a whole graph, and the edge decoder written out."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from bigtrk.models.settings import PyGConfig


class PlainModel(nn.Module):
    """Parameters have the names that they have in PyGModel; `weights` are the decoder's."""

    def __init__(self, net: nn.Module, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.net = net
        self.decoder = nn.ParameterDict(weights)
        for module in net.modules():  # constants, which no state has
            module._non_persistent_buffers_set.update(module._buffers)

    @classmethod
    def of(cls, config: PyGConfig, n_node_features: int, n_edge_features: int) -> Self:
        """Makes that of a configuration, with any weights, of a network of tests/models."""
        module, _, name = config.module.partition(":")
        options = {key: value for key, value in config.options.items() if key != "module"}
        net = getattr(importlib.import_module(module), name)
        return cls(
            net(n_node_features, n_edge_features, **options),
            config.build(n_node_features, n_edge_features, pt_head=False).decoder.state_dict(),
        )

    def forward(self, x: Tensor, e: Tensor, edge_index: Tensor) -> Tensor:
        """Computes the logits [E]."""
        takes_edges = "edge_attr" in inspect.signature(self.net.forward).parameters
        nodes = self.net(x, edge_index, *((e,) if takes_edges else ()))
        values = torch.cat([nodes[edge_index[0]], nodes[edge_index[1]], e], dim=1)
        last = len(self.decoder) // 2 - 1
        for k in range(last + 1):
            values = values @ self.decoder[f"mlp_{k}_weight"].T + self.decoder[f"mlp_{k}_bias"]
            if k < last:
                values = layer_norm(values, values.shape[-1:]).tanh()
        return values[:, 0]
