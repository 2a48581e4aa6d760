"""A trial of a network on a small graph and on parts of it, before it is trained.

It tells the width of the embedding, and finds what the classes of layers do not tell (refusals.py):
which layer gives an owned node another row in a sector than in the whole graph, and whether the
embedding, of which the decoder reads the halo's rows too, has another row there.

Shapes: N nodes, E edges, F and G node and edge features, D the width of the embedding.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from bigtrk.errors import reason
from bigtrk.models.check import own_random_numbers
from bigtrk.models.protocol import ContractError, SectorInputs, no_exchange
from bigtrk.models.pyg.exchanging import LayerExchange
from bigtrk.models.pyg.recomputing import refusing_recomputation
from bigtrk.user_code import no_exit

_NODES, _EDGES = 12, 40
# Nodes 5 and 11 have no edge. The others have edges to the next few alone, so that the first
# _OWNED nodes, counted from either end, have all their neighbours among the first _NEAR.
_CONNECTED = (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)
_REACH, _OWNED, _NEAR = 4, 4, 8
# The nodes of the sector: in the order of the whole graph, rows that depend on their number would
# be right.
_ORDER = [*reversed(range(_OWNED)), *reversed(range(_OWNED, _NEAR))]
_AFTER = "what is computed after the last layer"
_TOLERANCE = 1e-9  # of the largest value; rounding gives 1e-15, a wrong row 1e-2 and more


class Embeds(Protocol):
    """A model that embeds nodes and exchanges after each of its network's layers."""

    net: nn.Module

    def embed(self, sector: SectorInputs, layers: LayerExchange) -> Tensor:
        """Computes the embedding [N, D] of a sector that has an edge."""

    def double(self) -> Self:
        """Computes in float64 from now on."""


def embedding_width(model: Embeds, n_node_features: int, n_edge_features: int) -> int:
    """Runs the network of `model` on a small graph and returns the width of its embedding. Sizes
    that layers take from their first input are set then; random numbers stay as they were.

    Raises:
        ContractError: the network fails, or gives no embedding of each node.
    """
    graph = _graph(n_node_features, n_edge_features)
    with own_random_numbers(graph.x), _failures_told(model):
        return _width(model, graph)


def try_out(model: Embeds, n_node_features: int, n_edge_features: int) -> None:
    """Compares the network of `model` on parts of a small graph with the whole, in float64; random
    numbers stay as they were.

    Raises:
        ContractError: the network fails, gives another embedding to the nodes of a sector, owned or
            halo, than to those of the whole graph, or a gradient that is not finite,
            or a layer runs in the backward pass again.
    """
    graph = _graph(n_node_features, n_edge_features)
    with own_random_numbers(graph.x), _failures_told(model):
        _prove(deepcopy(model).double(), graph)


@contextmanager
def _failures_told(model: Embeds) -> Iterator[None]:
    """Tells in one line whatever fails within."""
    try:
        with no_exit():
            yield
    except ContractError:
        raise
    except Exception as error:
        said = f"fails on a graph of {_NODES} nodes ({type(error).__name__}: {reason(error)})"
        raise _broken(model, said) from error


def _width(model: Embeds, graph: SectorInputs) -> int:
    embedding = model.embed(graph, LayerExchange(graph, _NODES, no_exchange))
    shape = list(embedding.shape) if isinstance(embedding, Tensor) else type(embedding).__name__
    if not isinstance(shape, list) or len(shape) != 2 or shape[0] != _NODES or not shape[1]:
        raise _broken(model, f"gives {shape} for {_NODES} nodes; return their embeddings [N, D]")
    return shape[1]


def _prove(model: Embeds, graph: SectorInputs) -> None:
    """Compares, in float64, both ends of `graph` as sectors with the whole.

    Raises:
        ContractError: they differ after a layer, or a gradient is not finite.
    """
    x, edge_features, edge_index, _ = graph
    x, edge_features = x.double(), edge_features.double()
    _prove_end(model, SectorInputs(x, edge_features, edge_index, _NODES))
    turned = (_NODES - 1 - edge_index).flip(1)
    _prove_end(model, SectorInputs(x.flip(0), edge_features.flip(0), turned, _NODES))


def _graph(n_node_features: int, n_edge_features: int) -> SectorInputs:
    """Draws a graph of 12 nodes, two of them without edges, with self loops and repeated edges."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_NODES, n_node_features, generator=generator)
    edge_features = torch.randn(_EDGES, n_edge_features, generator=generator)
    n, loops = len(_CONNECTED), torch.arange(3)
    first = torch.randint(n, (_EDGES - len(loops),), generator=generator)
    step = torch.randint(1, _REACH, first.shape, generator=generator)
    pair = torch.stack([first, torch.where(first + step < n, first + step, first - step)])
    turned = torch.rand(len(first), generator=generator) < 0.5
    pair = torch.where(turned, pair.flip(0), pair)
    edge_index = torch.tensor(_CONNECTED)[torch.cat([pair, loops.expand(2, -1)], dim=1)]
    return SectorInputs(x, edge_features, edge_index, _NODES)


def _prove_end(model: Embeds, whole: SectorInputs) -> None:
    """Compares the sector of the first _OWNED nodes of `whole` with it, after each exchange."""
    exchanged: list[Tensor] = []

    def record(rows: Tensor) -> Tensor:
        exchanged.append(rows.detach().clone())
        return rows

    expected = model.embed(whole, LayerExchange(whole, _NODES, record))[_ORDER]
    found: list[Tensor] = []

    def replace(owned: Tensor) -> Tensor:
        known = exchanged[len(found)][_ORDER]
        found.append(_difference(owned, known[:_OWNED]))
        return torch.cat([owned, known[_OWNED:]])

    layers = LayerExchange(_sector(whole), _NEAR, replace)
    embedding = model.embed(_sector(whole), layers)
    found.append(_difference(embedding, expected))
    places = [*(f"layer {name}, or what is computed before it," for name in layers.layers), _AFTER]
    for place, difference in zip(places, found, strict=True):
        if not difference <= _TOLERANCE:
            raise ContractError(f"{place} gives {_told(float(difference))}")
    _check_gradients(model, embedding)


def _told(difference: float) -> str:
    if math.isnan(difference):
        return "a row that is not finite where nodes lack edges; look for divisions by their number"
    return (
        f"a node of a sector another row than in the whole graph (by {difference:.0e}); a layer "
        f"may read the edges of a node and the rows at their other ends, once, and not what else "
        f"these nodes' edges say (degrees), all nodes at once, their numbers, or random numbers; "
        f"between and after layers each row is computed of itself alone: let a MessagePassing "
        f"layer sum over edges"
    )


def _sector(whole: SectorInputs) -> SectorInputs:
    """Takes the nodes of _ORDER, _OWNED of them owned, with all edges that touch the owned ones;
    edges are in another order, too.
    """
    touches = (whole.edge_index < _OWNED).any(0)
    edge_features = whole.edge_features[touches].flip(0)
    place = torch.tensor(_ORDER).argsort()
    edge_index = place[whole.edge_index[:, touches].flip(1)]
    return SectorInputs(whole.x[_ORDER], edge_features, edge_index, _OWNED)


def _difference(found: Tensor, expected: Tensor) -> Tensor:
    found, expected = found.detach(), expected.detach()
    return (found - expected).abs().max() / expected.abs().max().clamp_min(1e-30)


def _check_gradients(model: Embeds, embedding: Tensor) -> None:
    """Checks that rows which the exchange replaced leave no NaN in gradients: 0 x NaN is NaN; and
    that no layer runs again for them.
    """
    # torch.autograd.grad refuses torch.utils.checkpoint(use_reentrant=True) by itself.
    with refusing_recomputation(model.net):
        embedding.sum().backward()
    for name, parameter in model.net.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            raise _broken(
                model,
                f"gives its parameter {name} a gradient that is not finite where nodes lack edges; "
                f"look for divisions by their number",
            )


def _broken(model: Embeds, how: str) -> ContractError:
    return ContractError(f"{type(model.net).__name__}: {how} (docs/adding/pyg.md)")
