"""Networks that give something else in a sector than in the whole graph are refused by name."""

import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing, SAGEConv
from torch_geometric.utils import degree, scatter

from bigtrk.errors import InputError
from bigtrk.models.pyg_model import PyGModel
from bigtrk.models.settings import AttentionGNNConfig
from bigtrk.proof.prove import check_model
from tests.models.graphs import F, G

Between = Callable[[Tensor, Tensor], Any]


class Around(nn.Module):
    """A layer, and what comes after it, within a network that is fine by itself."""

    def __init__(self, layer: nn.Module | None = None, after: Between | None = None) -> None:
        super().__init__()
        self.first = SAGEConv(F, 4)
        self.layer: Any = layer
        self.after = after
        self.last = SAGEConv(4, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.first(x, edge_index)
        if isinstance(self.layer, MessagePassing | pyg.TopKPooling):
            x = self.layer(x, edge_index)
        elif self.layer is not None:
            x = self.layer(x)
        if self.after is not None:
            x = self.after(x, edge_index)
        return self.last(x, edge_index)


def refused(net: nn.Module) -> str:
    with pytest.raises(InputError) as caught:
        check_model(PyGModel(net, AttentionGNNConfig(hidden=4), F, G), F, G)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        (nn.BatchNorm1d(4), "layer 'layer' (BatchNorm1d): averages .* use torch.nn.LayerNorm"),
        (pyg.InstanceNorm(4), "layer 'layer' (InstanceNorm): averages"),
        (pyg.GraphNorm(4), "layer 'layer' (GraphNorm): averages"),
        (pyg.LayerNorm(4), "layer 'layer' (LayerNorm): averages .* mode='node'"),
        (
            pyg.GENConv(4, 4),
            "layer 'layer' (GENConv) with 'layer.mlp.1' (BatchNorm1d): averages .* norm='layer'",
        ),
        (
            pyg.GINConv(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))),
            "layer 'layer' (GINConv) with 'layer.nn.1' (Dropout): drops values at random",
        ),
        (pyg.GATConv(4, 4, dropout=0.1), "layer 'layer' (GATConv): drops values at random"),
        (pyg.MLP([4, 4, 4], norm=None, dropout=0.1), "layer 'layer' (MLP): drops values"),
        (nn.RReLU(), "layer 'layer' (RReLU): draws random slopes; use torch.nn.LeakyReLU"),
        (pyg.TopKPooling(4), "layer 'layer' (TopKPooling): pools the nodes"),
        (SAGEConv(4, 4, aggr="median"), "(MedianAggregation): depends on the order"),
        (pyg.GCNConv(4, 4, cached=True), "layer 'layer' (GCNConv): uses what it computed for the"),
        (pyg.TAGConv(4, 4, K=2), "'net.layer' .* in test_pyg_refusals.py:"),
        (pyg.GatedGraphConv(4, 2), "'net.layer' .* in test_pyg_refusals.py:"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_layer_is_refused_by_its_name(layer: nn.Module, line: str) -> None:
    torch.manual_seed(0)
    parts = line.split(" .* ")
    said = refused(Around(layer))
    assert all(part in said for part in parts), said


class Before(Around):
    """Ends in what comes after its layers."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.last(self.first(x, edge_index), edge_index)
        assert self.after is not None
        return self.after(x, edge_index)


@pytest.mark.parametrize(
    ("net", "after"),
    [
        (Around, lambda x, _: dropout(x, 0.5)),
        (Around, lambda x, _: x - x.mean(0)),
        (Around, lambda x, edges: x * degree(edges[0], len(x))[:, None]),
        (Around, lambda x, edges: x.index_add(0, edges[1], x[edges[0]])),
        (Before, lambda x, edges: scatter(x[edges[0]], edges[1], 0, len(x))),
        (Before, lambda x, _: x + torch.arange(len(x))[:, None]),
        (Before, lambda x, _: x + x[:1]),
    ],
)
def test_a_function_between_or_after_layers_is_refused(net: type[Around], after: Between) -> None:
    """The comparison with the whole graph tells; the decoder reads halo nodes' embeddings, too."""
    torch.manual_seed(0)
    said = refused(net(after=after))
    reads = "'decoder' (EdgeNetwork), index_select: reads rows of h"
    last = reads if net is Before else "'net.last' (SAGEConv), "
    assert said.startswith((f"'net' ({net.__name__}), ", last))
    assert net is Before or " in test_pyg_refusals.py:" in said


class Divides(MessagePassing):  # type: ignore[misc]  # PyG has no types
    """A mean that divides by a number of edges which may be none."""

    def __init__(self) -> None:
        super().__init__("sum")
        self.linear = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        sums: Tensor = self.propagate(edge_index, x=self.linear(x))
        counts: Tensor = degree(edge_index[1], len(x), x.dtype)
        return sums / counts[:, None]


class Keeps(Around):
    """Keeps all that it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.kept.append(super().forward(x, edge_index))
        return self.kept[-1]


class Recomputes(Around):
    """Computes its layers again in the backward pass, without their exchanges."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return checkpoint(super().forward, x, edge_index, use_reentrant=self.use_reentrant)


class Single(Around):
    """Computes in float32, whatever its weights are."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return super().forward(x.float(), edge_index)


class Pair(Around):
    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.first(x, edge_index)
        return self.last((x, x), edge_index)


class Weights(Around):
    def __init__(self) -> None:
        super().__init__()
        self.layer = pyg.GATConv(4, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.first(x, edge_index)
        return self.layer(x, edge_index, return_attention_weights=True)[0]


FAILS = "network Around: fails in a test on 12 nodes"


@pytest.mark.parametrize(
    ("net", "line"),
    [
        (Around(Divides()), "PyGModel: returns NaN or infinity for a sector"),
        (Keeps(), "layer Keeps: stores a tensor with gradients in its attribute 'kept'; "),
        (Recomputes(False), "net.last.lin_l.weight: its gradient is not the same in sectors"),
        (Recomputes(True), "network Recomputes: fails in a test on 12 nodes (UserWarning: "),
        (Single(), "'net.first.lin_l' (Linear) in test_pyg_refusals.py:"),
        (Pair(), "layer 'last' (SAGEConv): is called with a tuple of node tensors"),
        (Weights(), "layer 'layer' (GATConv): returns tuple; let it return one tensor"),
        (
            Before(after=lambda x, _: x.mean(0)),
            "network Before: returns [4] for 12 nodes; let forward return embeddings",
        ),
        (nn.Linear(F, 4), "network Linear: holds no torch_geometric.nn.MessagePassing layer"),
        (Around(after=lambda x, _: x[:, :1]), f"{FAILS} (RuntimeError"),
        (Around(after=lambda *_: sys.exit(0)), f"{FAILS} (RuntimeError: it"),
    ],
)
def test_other_networks_are_refused(net: nn.Module, line: str) -> None:
    assert refused(net).startswith(line)


@pytest.mark.parametrize(
    "layer",
    [
        pyg.GENConv(4, 4, norm="layer"),
        pyg.LayerNorm(4, mode="node"),
        pyg.GATConv(4, 4),
        SAGEConv(4, 4, aggr=["std", "softmax", "powermean"]),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_what_takes_each_row_alone_is_accepted(layer: nn.Module) -> None:
    check_model(PyGModel(Around(layer), AttentionGNNConfig(hidden=4), F, G), F, G)


class KeepsLast(Around):
    """Keeps the last of what it computes, in place of what it had."""

    kept: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.before: Any = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.kept = {"rows": super().forward(x, edge_index)}
        self.before = self.kept["rows"]
        return self.before


def test_a_network_forgets_what_it_computes() -> None:
    """It can be copied, and holds no memory of a pass."""
    net = KeepsLast()
    deepcopy(PyGModel(net, AttentionGNNConfig(hidden=4), F, G))
    assert net.kept is None
    assert net.before is None
