"""The contract that a model keeps with the engines, the halo exchange and the cost model.

Two kinds: an edge model gives a logit for each edge, [E] (or [E, 2]: the logit, and the log of the
pT of the edge's particle in GeV); a hit model gives an embedding of each node, [N, D]. Results are
float32 at least, whatever the model computes in.

Two forms, both called as `model(x, edge_features, edge_index, n_owned, exchange)`, which raises
IndexError if an edge ends outside of the N nodes. A layered model derives from `LayeredModel`, and
also takes several sectors of an event at once. A simple model has a `forward` of its own, which
calls the exchange between its layers; a rank's sectors are merged into one for it.

Both forms keep these promises:

* Of the N nodes the first n_owned are owned. The others are halo: copies of nodes that other
  sectors own. A sector has all edges of its owned nodes, but only some edges of its halo nodes. So
  a layer's sums over edges are right for owned nodes alone, and only their rows [n_owned, H] go to
  the exchange. It returns all rows [N, H]: owned rows unchanged, halo rows as their owners have
  them. An edge reads only input features or exchanged rows of a halo node.
* A node's row depends only on the edges that end at it and on their other ends, so nothing is
  averaged over a sector's nodes or edges (BatchNorm, GraphNorm) and nothing is dropped at random.
* The number of exchanges, and the width of each, is the same for every sector, an empty one too.
* An empty sector (no nodes, no edges) runs every layer, and gives every parameter a gradient, of
  zero.
* The exchange is called only in the forward pass, so it lies outside of recomputed parts. No hook
  changes a parameter's gradient: it would run before the gradients of the sectors are summed.
* The model keeps its state in parameters: float32, trained, each with one name and at least one
  dimension. A constant is a buffer with persistent=False. The weights of a submodule are read in
  that submodule's own `forward`, where engines that shard them have gathered them.

Before each training small sectors, an empty one among them, show whether a model keeps these
promises (`bigtrk/proof/`); `bigtrk check-model` proves it on many graphs, whole and cut.

Shapes: N nodes, E edges, F and G node and edge features, H the width of an exchange.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from bigtrk.errors import InputError
from bigtrk.tracing import traced

Exchange = Callable[[Tensor], Tensor]  # owned rows [n_owned, H] -> all rows [N, H]
ExchangeAll = Callable[[list[Tensor]], list[Tensor]]  # the same for each sector of a rank
Graph = TypeVar("Graph")  # the constants of a sector that a model's layers read
# Graphs, nodes [N, H] and edges [E, ...] of each sector -> owned nodes [n_owned, H], and edges.
LayerCall = Callable[[list[Graph], list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]


class Arrival(Protocol):
    """Halo rows that are being received from other ranks."""

    @property
    def is_awaited(self) -> bool:
        """True while some of the halo rows may not have arrived."""

    def wait(self) -> None:
        """Waits until all halo rows have arrived; the first call copies them into their places."""


@runtime_checkable
class EarlyExchange(Protocol):
    """An exchange that lets a layer compute edges between owned nodes while halo rows travel."""

    def begin(self, owned: list[Tensor]) -> tuple[list[Tensor], Arrival]:
        """Returns all rows [N, H] of each sector; halo rows are valid after `Arrival.wait`."""


@dataclass(frozen=True)
class OfOneSector:
    """Adapts the exchange for a list of sectors to a rank's only sector."""

    exchange: ExchangeAll

    def __call__(self, owned: Tensor) -> Tensor:
        return self.exchange([owned])[0]


class ContractError(InputError):
    """A model breaks this contract; the message names the layer, or else the model."""


class SectorInputs(NamedTuple):
    """The inputs of a model for one sector: x [N, F], edge_features [E, G] (both normalised),
    edge_index [2, E] (source, destination); the first n_owned nodes are owned.
    """

    x: Tensor
    edge_features: Tensor
    edge_index: Tensor
    n_owned: int


class Ends(NamedTuple):
    """The two ends of M edges, and a row for each node at either end. of_source, of_destination:
    the rows [N, H]. source, destination [M]: edge_index [2, E] of the sector from edge `first` on.
    """

    of_source: Tensor
    of_destination: Tensor
    source: Tensor
    destination: Tensor
    edge_index: Tensor
    first: int = 0

    @classmethod
    def between(cls, of_source: Tensor, of_destination: Tensor, edge_index: Tensor) -> "Ends":
        """Makes the ends of all edges of a sector from rows [N, H] and edge_index [2, E]."""
        source, destination = edge_index
        return cls(of_source, of_destination, source, destination, edge_index)

    def of(self, rows: slice) -> "Ends":
        """Returns the ends of the edges in the slice `rows`."""
        ends = self.source[rows], self.destination[rows]
        return Ends(self[0], self[1], *ends, self.edge_index, self.first + rows.start)


def accumulable(values: Tensor) -> Tensor:
    """Converts `values` to a type fit for long sums: bfloat16 -> float32, others unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class LayeredModel(nn.Module, ABC, Generic[Graph]):
    """A model whose `forward_all` calls encode, each of `layers` and decode, and exchanges halo
    rows after each layer.

    Each call gets the list of a rank's sectors of an event, and computes one after another, so that
    only one needs working memory. A submodule with weights is called once for the whole list, not
    for each sector. It takes and returns tensors that need gradients in lists (not in classes of
    one's own), since the hooks of engines that shard parameters look for them there.
    """

    layers: nn.ModuleList

    @abstractmethod
    def encode(self, sectors: list[SectorInputs]) -> tuple[list[Graph], list[Tensor], list[Tensor]]:
        """Returns, for each sector, graph, nodes [N, H] (with halo rows) and edges [E, ...]."""

    @abstractmethod
    def decode(self, graphs: list[Graph], nodes: list[Tensor], edges: list[Tensor]) -> list[Tensor]:
        """Returns, for each sector, logits [E] or [E, 2], or an embedding [N, D]."""

    def layer_calls(self) -> Sequence[LayerCall[Graph]]:
        """Lists the layers in the order in which they run: `layers`, unless some run twice."""
        return list(self.layers)

    def exchanged(
        self,
        graphs: list[Graph],  # noqa: ARG002
        owned: list[Tensor],
        exchange: ExchangeAll,
    ) -> list[Tensor]:
        """Returns all rows [N, H] from owned rows; halo rows of an EarlyExchange may come later."""
        return exchange(owned)

    def forward_all(self, sectors: list[SectorInputs], exchange: ExchangeAll) -> list[Tensor]:
        """Returns the result of each sector. Calls each layer once for all sectors. Engines that
        shard parameters gather them in hooks of these calls, so all ranks must make the same calls.
        """
        for sector in sectors:
            check_edges(sector.edge_index, len(sector.x))
        with traced("encode"):
            graphs, nodes, edges = self.encode(sectors)
        for i, layer in enumerate(self.layer_calls()):
            owned, edges = layer(graphs, nodes, edges)
            with traced(f"layer {i} exchange"):
                nodes = self.exchanged(graphs, owned, exchange)
        with traced("decode"):
            return self.decode(graphs, nodes, edges)

    def forward(self, *arguments: Any) -> Any:
        """Computes one sector, or several, as `forward_all` does; engines wrap this call."""
        *inputs, exchange = arguments
        if len(inputs) == 1:
            return self.forward_all(inputs[0], exchange)
        sector = SectorInputs(*inputs)
        if isinstance(exchange, OfOneSector):
            return self.forward_all([sector], exchange.exchange)[0]
        return self.forward_all([sector], lambda owned: [exchange(rows) for rows in owned])[0]


def no_exchange(owned: Tensor) -> Tensor:
    """Returns the owned rows unchanged: the exchange of a whole graph, which has no halo."""
    return owned


CHECKED = WeakTensorKeyDictionary()  # checked edge_index -> number of nodes N


def check_edges(edge_index: Tensor, n_nodes: int) -> None:
    """Raises IndexError unless both ends of every edge [2, E] are nodes, in int64, as passes over
    edges assume. It does not wait for an accelerator: there a later call fails instead.
    """
    if edge_index.dtype != torch.int64:
        raise IndexError(f"edge_index is {edge_index.dtype}, not torch.int64")
    if edge_index.numel() == 0 or edge_index.is_meta or CHECKED.get(edge_index) == n_nodes:
        return
    if edge_index.is_cuda:
        inside = ((edge_index >= 0) & (edge_index < n_nodes)).all()
        torch._assert_async(inside, "an edge ends outside of the nodes of its graph")
        return
    lowest, highest = (int(end) for end in edge_index.aminmax())
    if lowest < 0 or highest >= n_nodes:
        end = lowest if lowest < 0 else highest
        raise IndexError(f"an edge ends at node {end}, outside of the {n_nodes} nodes of its graph")


def units(model: nn.Module) -> Iterator[nn.Module]:
    """Yields modules that engines gather whole: children; of a child never called, its children."""
    for child in model.children():
        called = type(child).forward is not nn.Module.forward
        yield from [child] if called else units(child)


def told(path: str, module: nn.Module) -> str:
    """Returns the name of a module for messages, from path and class: `'convs.0' (GATConv)`."""
    kind = type(module).__name__
    return f"{path!r} ({kind})" if path else kind
