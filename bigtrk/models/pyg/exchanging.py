"""The halo exchange after each message-passing layer of a network.

A layer computes all rows of a sector. Those of halo nodes, which lack edges, are replaced by what
their owners have before anything reads them; what lies between layers is computed row by row.

Shapes: N nodes of a sector of which the first n_owned are owned.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, MessagePassing

from bigtrk.models.layer_names import told
from bigtrk.models.protocol import ContractError, Exchange, SectorInputs
from bigtrk.models.pyg.gcn import WholeDegrees


class LayerExchange:
    """The exchanges of one pass over a sector; its rows from `n_nodes` on are nobody's."""

    def __init__(self, sector: SectorInputs, n_nodes: int, exchange: Exchange) -> None:
        self._n_rows, self._n_owned, self._n_nodes = len(sector.x), sector.n_owned, n_nodes
        self._exchange = exchange
        self._depth = 0  # of layers within layers

    @contextmanager
    def around(self, net: nn.Module, normalised: Collection[GCNConv]) -> Iterator[None]:
        """Exchanges the result of each message-passing layer of `net` while it runs; the layers
        `normalised` weigh their edges by the degrees of whole graphs.
        """
        degrees = WholeDegrees(self.fresh)
        handles = []
        for path, layer in net.named_modules():
            if not isinstance(layer, MessagePassing):
                continue
            name = told(path, layer)
            enter, leave = partial(self._enter, name), partial(self._leave, name)
            handles.append(layer.register_forward_pre_hook(enter, with_kwargs=True))
            if layer in normalised:
                handles.append(layer.register_forward_pre_hook(degrees.weigh, with_kwargs=True))
            handles.append(layer.register_forward_hook(leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def fresh(self, rows: Tensor) -> Tensor:
        """Replaces the halo's rows of [N, ...] by their owners'."""
        flat = rows.flatten(1)
        nodes = self._exchange(flat[: self._n_owned])
        return torch.cat([nodes, flat[self._n_nodes :]]).view_as(rows)

    def _enter(self, name: str, _: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Notes that a layer begins, which reads the rows of one kind of nodes."""
        self._depth += 1
        if any(map(_holds_tensors, (*args, *kwargs.values()))):
            raise ContractError(
                f"layer {name}: gets several tensors at once, of sources and destinations or of "
                f"kinds of nodes; graphs have one kind of nodes, so give it their one x"
            )

    def _leave(self, name: str, _: nn.Module, __: Any, result: Any) -> Tensor | None:
        """Exchanges the result of a layer, unless that is computed within another one."""
        self._depth -= 1
        if not isinstance(result, Tensor) or result.dim() < 2 or len(result) != self._n_rows:
            made = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise ContractError(
                f"layer {name}: gives {made}, not one tensor of a row for each of "
                f"{self._n_rows} nodes; let it return the nodes' rows alone"
            )
        return None if self._depth else self.fresh(result)


def _holds_tensors(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value
    several = isinstance(value, tuple | list | dict)
    return several and any(isinstance(part, Tensor) for part in parts)
