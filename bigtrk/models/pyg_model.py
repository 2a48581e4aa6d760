"""A network of PyG's layers as an edge model: the exchange around each layer, and a decoder.

A layer computes all rows of a sector. Halo rows are wrong, since halo nodes lack edges; the
exchange replaces them by their owners' rows before anything reads them. Code between layers works
row by row. `refuse` rejects, by class, layers that give other results in a sector than in the whole
graph. The proof before a training finds the rest, such as a function that drops edges.

GCNConv (Kipf and Welling, "Semi-supervised classification with graph convolutional networks", 2017)
divides the message of an edge by the square roots of the degrees of both ends. A sector has all
edges of its owned nodes, and so knows their degrees; halo degrees come from their owners. The stock
layer then runs with `normalize=False` on edges weighted here.

Shapes: N nodes of which the first n_owned are owned, E edges, F and G node and edge features, D the
width of the network's embedding.
"""

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils._pytree import tree_leaves
from torch_geometric.nn import GCNConv, LayerNorm, MessageNorm, MessagePassing, aggr
from torch_geometric.utils import add_remaining_self_loops, scatter

from bigtrk.errors import reason
from bigtrk.models.attention_gnn import AttentionGNNConfig, EdgeNetwork, Neighbours
from bigtrk.models.protocol import (
    ContractError,
    Exchange,
    SectorInputs,
    check_edges,
    no_exchange,
    told,
)
from bigtrk.user_code import no_exit

_ORDERED = (
    aggr.LSTMAggregation,
    aggr.GRUAggregation,
    aggr.MLPAggregation,
    aggr.PatchTransformerAggregation,
    aggr.QuantileAggregation,
    aggr.SortAggregation,
)


def refuse(net: nn.Module) -> None:
    """Raises ContractError if a module within `net` averages over nodes or edges, drops some at
    random, pools them, depends on their order, or caches results; or if none passes messages.
    """
    for path, module in net.named_modules():
        why = next(_reasons(module), None)
        if why:
            raise ContractError(f"layer {_within(net, path)}{told(path, module)}: {why}")
    if not any(isinstance(module, MessagePassing) for module in net.modules()):
        raise ContractError(
            f"network {type(net).__name__}: holds no torch_geometric.nn.MessagePassing layer; for "
            "such a model set model.name=package.module:Class instead of model.name=pyg"
        )


def _within(net: nn.Module, path: str) -> str:
    """Returns "LAYER with " for the layer that holds the module at `path`; "" without one."""
    parts = path.split(".")
    for n in range(len(parts) - 1, 0, -1):
        outer = ".".join(parts[:n])
        if isinstance(net.get_submodule(outer), MessagePassing):
            return f"{told(outer, net.get_submodule(outer))} with "
    return ""


def _reasons(module: nn.Module) -> Iterator[str]:
    by_row = isinstance(module, LayerNorm | MessageNorm)
    of_pyg = type(module).__module__.startswith("torch_geometric.nn.norm") and not by_row
    if of_pyg or isinstance(module, _BatchNorm | _InstanceNorm):
        yield (
            "averages over all nodes or edges, but a sector has only some; use torch.nn.LayerNorm "
            "(in a layer of PyG: CGConv(batch_norm=False), GENConv(norm='layer'))"
        )
    if isinstance(module, LayerNorm) and module.mode != "node":
        yield "averages over all nodes, but a sector holds only some of them; set its mode='node'"
    if (isinstance(module, _DropoutNd) and module.p > 0) or _drops(module):
        yield (
            "drops values at random, so the copies of an edge in two sectors would differ; set its "
            "dropout to 0 (LayerNorm and optimizer.weight_decay also prevent overfitting)"
        )
    if isinstance(module, nn.RReLU):
        yield "draws random slopes; use torch.nn.LeakyReLU"
    if type(module).__module__.startswith("torch_geometric.nn.pool"):
        yield "pools the nodes of the graph, but edges are classified from each node; leave it out"
    if isinstance(module, _ORDERED):
        yield (
            "depends on the order of a node's edges, which differs between sectors; use sum, mean, "
            "max, softmax or attention"
        )
    if getattr(module, "cached", False):
        yield "uses what it computed for the first graph for all other graphs; set cached=False"


def _drops(module: nn.Module) -> bool:
    """Whether a layer such as GATConv, or PyG's MLP, has a dropout probability above 0."""
    found = getattr(module, "dropout", 0.0)
    shares = found if isinstance(found, list | tuple) else [found]
    return any(isinstance(share, float | int) and share > 0 for share in shares)


def _weighted(
    fresh: Callable[[Tensor], Tensor], layer: GCNConv, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns inputs (x, edge_index, edge_weight) for `layer` with edges weighted by degrees in the
    whole graph. fresh: replaces halo rows [N, 1] by those their owners computed.
    """
    call = inspect.signature(layer.forward).bind(*args, **kwargs)
    call.apply_defaults()
    x, edge_index, edge_weight = call.args
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise ContractError("layer GCNConv: gets a sparse matrix; give it edge_index [2, E]")
    if layer.add_self_loops:
        loop = 2.0 if layer.improved else 1.0
        edge_index, edge_weight = add_remaining_self_loops(edge_index, edge_weight, loop, len(x))
    if edge_weight is None:
        edge_weight = x.new_ones(edge_index.shape[1])
    end = 1 if layer.flow == "source_to_target" else 0
    degree = scatter(edge_weight, edge_index[end], 0, len(x), "sum")
    scale = fresh(degree[:, None])[:, 0].pow(-0.5)
    scale = scale.masked_fill(scale == torch.inf, 0.0)
    return (x, edge_index, scale[edge_index[0]] * edge_weight * scale[edge_index[1]]), {}


@contextmanager
def forgotten(net: nn.Module) -> Iterator[None]:
    """Undoes, after the block, each attribute of a module in `net` to which the block assigned a
    tensor with gradients. Raises ContractError if a list, buffer or constructor keeps one.
    """
    before = [(path, module, dict(vars(module))) for path, module in net.named_modules()]
    yield
    for path, module, known in before:
        for name in [name for name, value in vars(module).items() if _computed(value)]:
            if name in known and _computed(known[name]):
                raise _kept(told(path, module), module, name)
            del vars(module)[name]
            if name in known:
                vars(module)[name] = known[name]


def _computed(value: Any) -> bool:
    leaves = tree_leaves(value)
    return any(isinstance(leaf, Tensor) and leaf.grad_fn is not None for leaf in leaves)


def _kept(layer: str, module: nn.Module, name: str) -> ContractError:
    if name == "_buffers":
        name = next(name for name, value in module._buffers.items() if _computed(value))
    return ContractError(
        f"layer {layer}: stores a tensor with gradients in its attribute {name!r}; compute it in "
        f"forward and keep it in a local variable"
    )


class LayerExchange:
    """The exchanges in one pass over a sector; `with_edges` added the rows from `n_nodes` on."""

    def __init__(self, sector: SectorInputs, n_nodes: int, exchange: Exchange) -> None:
        self._n_rows, self._n_owned, self._n_nodes = len(sector.x), sector.n_owned, n_nodes
        self._exchange = exchange
        self._depth = 0  # of layers within layers

    @contextmanager
    def around(self, net: nn.Module, normalised: Collection[GCNConv]) -> Iterator[None]:
        """Exchanges each layer's result while `net` runs. normalised: weighted by degree."""
        handles, weigh = [], partial(_weighted, self.fresh)
        for path, layer in net.named_modules():
            if not isinstance(layer, MessagePassing):
                continue
            name = told(path, layer)
            enter, leave = partial(self._enter, name), partial(self._leave, name)
            handles.append(layer.register_forward_pre_hook(enter, with_kwargs=True))
            if layer in normalised:
                handles.append(layer.register_forward_pre_hook(weigh, with_kwargs=True))
            handles.append(layer.register_forward_hook(leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def fresh(self, rows: Tensor) -> Tensor:
        """Replaces the halo rows of [N, ...] by those their owners computed."""
        flat = rows.flatten(1)
        nodes = self._exchange(flat[: self._n_owned])
        return torch.cat([nodes, flat[self._n_nodes :]]).view_as(rows)

    def _enter(self, name: str, _: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Counts that a layer begins; ContractError if its input is a tuple of node tensors."""
        self._depth += 1
        if any(map(_holds_tensors, (*args, *kwargs.values()))):
            raise ContractError(
                f"layer {name}: is called with a tuple of node tensors (such as sources and "
                "destinations), but graphs have one kind of node; give it x alone"
            )

    def _leave(self, name: str, _: nn.Module, __: Any, result: Any) -> Tensor | None:
        """Exchanges an outermost layer's result; ContractError unless it has N rows."""
        self._depth -= 1
        if not isinstance(result, Tensor) or result.dim() < 2 or len(result) != self._n_rows:
            made = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise ContractError(
                f"layer {name}: returns {made}; let it return one tensor with a row for each of "
                f"the {self._n_rows} nodes"
            )
        return None if self._depth else self.fresh(result)


def _holds_tensors(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value
    several = isinstance(value, tuple | list | dict)
    return several and any(isinstance(part, Tensor) for part in parts)


_TRIED = 12  # nodes of the graph on which a network is tried


class PyGModel(nn.Module):
    """Classifies edges by their features and the embeddings of their nodes from a PyG network."""

    def __init__(
        self,
        net: nn.Module,
        decoder: AttentionGNNConfig,
        n_node_features: int,
        n_edge_features: int,
    ) -> None:
        """Takes `net`, which maps (x [N, F], edge_index [2, E]) and, if its forward has an argument
        `edge_attr`, the edges' features [E, G], to embeddings [N, D]. Raises ContractError if `net`
        does not, or gives another result in a sector than in the whole graph.
        """
        super().__init__()
        refuse(net)
        for module in net.modules():
            # Buffers are no weights: the constructor computes them anew.
            module._non_persistent_buffers_set.update(module._buffers)
        self.net = net
        self._takes_edges = "edge_attr" in inspect.signature(net.forward).parameters
        convs: list[Any] = [module for module in net.modules() if type(module) is GCNConv]
        self._normalised = [conv for conv in convs if conv.normalize]
        for conv in self._normalised:
            conv.normalize = False  # `_weighted` weighs its edges
        width = self._embedding_width(n_node_features, n_edge_features)
        self.decoder = EdgeNetwork(decoder, width, n_edge_features)

    def forward(
        self, x: Tensor, edge_features: Tensor, edge_index: Tensor, n_owned: int, exchange: Exchange
    ) -> Tensor:
        """Returns the logits [E], float32 at least."""
        check_edges(edge_index, len(x))
        sector = with_edges(SectorInputs(x, edge_features, edge_index, n_owned))
        layers = LayerExchange(sector, len(x), exchange)
        embedding = self.embed(sector, layers)
        logits: Tensor = self.decoder([Neighbours(sector)], [embedding])[0]
        return logits[: len(edge_features)]

    def embed(self, sector: SectorInputs, layers: LayerExchange) -> Tensor:
        """Returns the embedding [N, D] of a sector that has edges; `layers` makes the exchanges."""
        edges = (sector.edge_features,) if self._takes_edges else ()
        with layers.around(self.net, self._normalised), forgotten(self.net):
            embedding: Tensor = self.net(sector.x, sector.edge_index, *edges)
        return embedding

    def _embedding_width(self, n_node_features: int, n_edge_features: int) -> int:
        """Returns the width D of the embedding of a small graph; this sizes lazy layers, too."""
        nodes = torch.arange(_TRIED)
        edges = torch.stack([nodes, nodes.roll(1)])
        try:
            with torch.random.fork_rng(devices=[]), no_exit():
                x, features = (torch.randn(_TRIED, n) for n in (n_node_features, n_edge_features))
                sector = SectorInputs(x, features, edges, _TRIED)
                made = self.embed(sector, LayerExchange(sector, _TRIED, no_exchange))
        except ContractError:
            raise
        except Exception as error:
            said = f"fails in a test on {_TRIED} nodes ({type(error).__name__}: {reason(error)})"
            raise self._bad(f"{said}; correct its forward") from error
        shape = list(made.shape) if isinstance(made, Tensor) else type(made).__name__
        if not isinstance(shape, list) or len(shape) != 2 or shape[0] != _TRIED or not shape[1]:
            said = f"returns {shape} for {_TRIED} nodes; let forward return embeddings [N, D]"
            raise self._bad(said)
        return shape[1]

    def _bad(self, how: str) -> ContractError:
        return ContractError(f"network {type(self.net).__name__}: {how} (see docs/adding/pyg.md)")


def with_edges(sector: SectorInputs) -> SectorInputs:
    """Adds two nodes joined by edges to a sector without edges: layers like GATConv need some."""
    x, edge_features, edge_index, n_owned = sector
    if edge_index.shape[1]:
        return sector
    sign = x.new_tensor([[1.0], [-1.0]])
    there = len(x) + torch.tensor([[0, 1], [1, 0]], device=x.device)
    return SectorInputs(
        torch.cat([x, sign.expand(-1, x.shape[1])]),
        torch.cat([edge_features, sign.to(edge_features).expand(-1, edge_features.shape[1])]),
        there,
        n_owned,
    )
