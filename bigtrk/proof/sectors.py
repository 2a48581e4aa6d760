"""Graphs to prove models on, and models run on the sectors of a graph in one process.

The graphs are random and have everything that has tripped halo exchanges. A thread runs each
sector, one at a time, from exchange to exchange, so that a model of the simple form runs as it is.

Shapes: N nodes of a sector of which the first n_owned are owned, E edges, H the width of an
exchange, D numbers of a result's row.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.sector import Sector, whole_sector
from bigtrk.models.options import Kind
from bigtrk.models.protocol import Exchange, SectorInputs
from bigtrk.user_code import no_exit
from partition.sectors import cut

KINDS = (
    "directed",
    "symmetric",
    "skipped layers",
    "hub",
    "self loops",
    "repeated edges",
    "isolated nodes",
    "empty sector",
    "sector of one node",
    "sector without edges",
    "no cut edges",
    "no edges",
)
PARTS = (2, 3, 4)
# A model that differs in eval mode differs there as it would in training mode: few graphs show it.
EVALUATED = (("directed", 2), ("hub", 3), ("empty sector", 4))
# Graphs of the quick proof before a training.
QUICK = (("self loops", 2), ("isolated nodes", 3))
# No usual widths of layers: the rows of nodes and of edges are known by their numbers. So few edges
# that no sector knows all nodes.
N_NODES, N_EDGES = 97, 158

RANDOM = "gives other rows in a second pass over the same graph: draw nothing at random (dropout)"
ORDER = (
    "gives other rows where nodes and edges come in another order, as they do in sectors: sum, or "
    "take the maximum, over a node's edges"
)
IN_BACKWARD = (
    "calls the exchange in its backward pass, where ranks would wait for each other; keep the "
    "exchange outside of what is recomputed (torch.utils.checkpoint)"
)
_TINY = 1e-300
# A gradient is compared with at least this share of the largest one: of one that is zero but for
# rounding (a bias before a softmax) nothing else could be told.
_LEAST_SHARE = 1e-3


class Case(NamedTuple):
    """A graph, the sectors it is compared with, and why rows differ there if that is known."""

    graph: str
    whole: Sector
    parts: Sequence[Sector]
    why: str | None = None


def cases(kinds: Sequence[tuple[str, int]], *sizes: int, mode: str = "") -> Iterator[Case]:
    """Yields what a whole graph can show (randomness, dependence on the order), then each kind of
    graph in its number of parts. sizes: the numbers of node and edge features.
    """
    whole = whole_sector(draw(KINDS[0], 2, *sizes)[0])
    yield Case(f"the same graph again{mode}", whole, [whole], RANDOM)
    yield Case(f"the same graph in another order{mode}", whole, [_shuffled(whole)], ORDER)
    for kind, parts in kinds:
        graph, sectors = draw(kind, parts, *sizes)
        yield Case(kind + mode, whole_sector(graph), sectors)


@cache
def draw(
    kind: str, parts: int, n_node_features: int, n_edge_features: int
) -> tuple[EventGraph, list[Sector]]:
    """Draws a graph that has what `kind` names, in float64, and cuts it into `parts` sectors; the
    same in every call.
    """
    generator = torch.Generator().manual_seed(100 * KINDS.index(kind) + parts)
    owner = torch.randint(
        parts - (kind in ("empty sector", "sector of one node")), (N_NODES,), generator=generator
    )
    if kind == "sector of one node":
        owner[N_NODES // 2] = parts - 1
    if kind == "sector without edges":
        owner = torch.arange(N_NODES) % parts
    ends = _edges(kind, owner, generator)[:, :N_EDGES]
    ends = ends[:, torch.randperm(ends.shape[1], generator=generator)]
    if kind == "no edges":
        ends = ends[:, :0]

    def features(n_rows: int, width: int) -> Tensor:
        return torch.randn(n_rows, width, generator=generator, dtype=torch.float64)

    graph = EventGraph(
        name=kind,
        node_feature_names=tuple(f"node feature {i}" for i in range(n_node_features)),
        edge_feature_names=tuple(f"edge feature {i}" for i in range(n_edge_features)),
        node_features=features(N_NODES, n_node_features),
        edge_index=ends,
        edge_features=features(ends.shape[1], n_edge_features),
    )
    return graph, cut(graph, owner, parts)


def _edges(kind: str, owner: Tensor, generator: torch.Generator) -> Tensor:
    """Lists edges [2, any], those first that make the kind; of the others no two are the same."""
    nodes = torch.arange(N_NODES)
    ends = torch.cartesian_prod(nodes, nodes).T
    source, destination = ends
    joined = source != destination
    if kind == "symmetric":
        joined &= source < destination
    if kind == "skipped layers":  # from an inner layer to any of the outer ones
        joined &= source * 5 // N_NODES < destination * 5 // N_NODES
    if kind == "isolated nodes":
        joined &= (ends % 3 > 0).all(0)
    if kind == "sector without edges":
        joined &= (owner[ends] > 0).all(0)
    if kind == "no cut edges":
        joined &= owner[source] == owner[destination]
    plain = ends[:, joined]
    plain = plain[:, torch.randperm(plain.shape[1], generator=generator)]
    first, of_hub = plain[:, : N_EDGES // 2], torch.stack([torch.zeros_like(nodes), nodes])[:, 1:]
    special = {
        "symmetric": torch.cat([first, first.flip(0)], dim=1),
        "hub": torch.cat([of_hub, of_hub.flip(0)], dim=1),
        "self loops": nodes[::2].expand(2, -1),
        "repeated edges": plain[:, : N_EDGES // 5].repeat(1, 2),
    }
    return torch.cat([special.get(kind, plain[:, :0]), plain], dim=1)


def _shuffled(whole: Sector) -> Sector:
    """Puts the nodes and the edges of a whole graph in another order, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randperm(whole.n_nodes, generator=generator)
    edges = torch.randperm(whole.n_edges, generator=generator)
    return replace(
        whole,
        node_id=nodes,
        edge_id=whole.edge_id[edges],
        node_features=whole.node_features[nodes],
        edge_index=nodes.argsort()[whole.edge_index[:, edges]],
        edge_features=whole.edge_features[edges],
    )


class SectorError(Exception):
    """A sector cannot go on with the others: the message says which and why; its cause is the
    error of the model, if it raised one.
    """


class _Ended(BaseException):
    """Ends the pass of a sector whose others cannot go on; no `except Exception` catches it."""


class _SectorThread(Thread):
    """A sector's pass, which waits in each exchange until it is told to go on.

    Once it has ended its exchange fails, as a backward pass that computes it anew would call it:
    nobody would tell that to go on.
    """

    def __init__(self, run: Callable[[Exchange], Tensor]) -> None:
        super().__init__(daemon=True)
        self._run_pass = run
        self._brought: SimpleQueue[Tensor | None] = SimpleQueue()
        self._sent: SimpleQueue[Tensor | None] = SimpleQueue()
        self._over = False
        # Each thread has these for itself.
        self._has_gradients = torch.is_grad_enabled()
        self._device = torch.cuda.current_device() if torch.cuda.is_initialized() else -1
        self.made: Tensor | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            gradients = torch.set_grad_enabled(self._has_gradients)
            with gradients, torch.cuda.device(self._device), no_exit():
                self.made = self._run_pass(self._exchange)
        except BaseException as error:
            self.error = error
        self._over = True
        self._sent.put(None)

    def _exchange(self, owned: Tensor) -> Tensor:
        if self._over:
            raise SectorError(IN_BACKWARD)
        self._sent.put(owned)
        rows = self._brought.get()
        if rows is None:
            raise _Ended
        return rows

    def begin(self) -> Tensor | None:
        """Runs to the first exchange; gives the rows sent there, or None where the pass ends."""
        self.start()
        return self._sent.get()

    def go_on(self, rows: Tensor | None) -> Tensor | None:
        """Runs on with all rows [N, H], or ends the pass (None); gives what `begin` does."""
        self._brought.put(rows)
        return self._sent.get()


def run_sectors(
    passes: Sequence[Callable[[Exchange], Tensor]], sectors: Sequence[Sector], alone: bool = False
) -> tuple[list[Tensor], list[int]]:
    """Runs each pass on its sector, all of one graph, by the sectors' own halo plans; gradients
    flow through the exchanges, unless each is `alone`. Also gives the exchanges' widths.

    Raises:
        SectorError: a model fails in a sector, gives the exchange other rows than the owned ones or
            of another width than others do, or makes another number of exchanges.
    """
    threads = [_SectorThread(run) for run in passes]
    sent, widths = [thread.begin() for thread in threads], list[int]()
    try:
        while any(rows is not None for rows in sent):
            brought = exchanged(_checked(threads, sent, sectors), sectors, alone)
            widths.append(brought[0].shape[1])
            sent = [thread.go_on(rows) for thread, rows in zip(threads, brought, strict=True)]
        _raise_first(threads, sectors)
    finally:
        for thread, rows in zip(threads, sent, strict=True):
            if rows is not None and thread.is_alive():
                thread.go_on(None)
    made = [thread.made for thread in threads if thread.made is not None]  # all have ended well
    return made, widths


def exchanged(
    owned: Sequence[Tensor], sectors: Sequence[Sector], alone: bool = False
) -> list[Tensor]:
    """Gives each sector all its rows [N, H], the halo's from the owned rows [n_owned, H] of the
    others, as their halo plans say.
    """
    pairs = zip(owned, sectors, strict=True)
    sent = [
        (rows.detach() if alone else rows)[sector.send_index].split(sector.send_splits)
        for rows, sector in pairs
    ]
    return [torch.cat([rows, *(halo[k] for halo in sent)]) for k, rows in enumerate(owned)]


def _checked(
    threads: Sequence[_SectorThread], sent: Sequence[Tensor | None], sectors: Sequence[Sector]
) -> list[Tensor]:
    """Checks that all sectors are at an exchange, with their owned rows, equally wide."""
    _raise_first(threads, sectors)
    rows = [each for each in sent if each is not None]
    ended = [sector for sector, each in zip(sectors, sent, strict=True) if each is None]
    if ended:
        raise SectorError(
            f"makes fewer exchanges for {told_sector(ended[0])} than for others of its graph, so "
            f"ranks would wait for each other"
        )
    for sector, each in zip(sectors, rows, strict=True):
        if each.dim() != 2 or len(each) != sector.n_owned or each.shape[1] != rows[0].shape[-1]:
            raise SectorError(
                f"gives the exchange rows of shape {list(each.shape)} for {told_sector(sector)}; "
                f"give it the owned rows [n_owned, H] alone, equally wide for each sector"
            )
    return rows


def _raise_first(threads: Sequence[_SectorThread], sectors: Sequence[Sector]) -> None:
    for thread, sector in zip(threads, sectors, strict=True):
        if isinstance(thread.error, Exception):
            raise SectorError(f"fails for {told_sector(sector)}") from thread.error
        if thread.error is not None:
            raise thread.error


def told_sector(sector: Sector) -> str:
    """Names a sector by what it has."""
    halo = sector.n_nodes - sector.n_owned
    return f"a sector of {sector.n_owned} nodes, {halo} halo nodes and {sector.n_edges} edges"


class Outcome(NamedTuple):
    """rows: what the model gives, [E] or [E, 2], of a hit model [N, D], in the graph's order;
    gradients: of each parameter, of a sum of these with fixed random weights.
    """

    rows: Tensor
    gradients: dict[str, Tensor]


class Difference(NamedTuple):
    """The largest differences of two outcomes, each relative to the largest value: of the rows, and
    of the gradient of each parameter.
    """

    rows: float
    of_each: dict[str, float]

    @property
    def gradients(self) -> float:
        return max(self.of_each.values(), default=0.0)


def inputs_of(sector: Sector) -> SectorInputs:
    """Gives a sector as models read it, in tensors that the model may change."""
    x, edge_features = sector.node_features.clone(), sector.edge_features.clone()
    return SectorInputs(x, edge_features, sector.edge_index.clone(), sector.n_owned)


def replica(model: nn.Module) -> nn.Module:
    """Copies a model but for its weights: what it keeps of a pass stays with its sector, as on
    ranks.
    """
    return deepcopy(model, {id(weight): weight for weight in model.parameters()})


def results(
    model: nn.Module, sectors: Sequence[Sector], kind: Kind, alone: bool = False
) -> tuple[list[Tensor], list[int]]:
    """Runs `model` on the sectors of one graph, as `run_sectors` says.

    Raises:
        SectorError: as there, or a result is none of its `kind`.
    """
    passes = [partial(replica(model), *inputs_of(sector)) for sector in sectors]
    made, widths = run_sectors(passes, sectors, alone)
    for rows, sector in zip(made, sectors, strict=True):
        which = told_sector(sector)
        if not isinstance(rows, Tensor):
            raise SectorError(f"gives a {type(rows).__name__} for {which}; return a tensor")
        shape = list(rows.shape)
        allowed = {
            "edge": ([sector.n_edges], [sector.n_edges, 2]),
            "hit": ([sector.n_nodes, *shape[1:2]],),
        }
        if shape not in allowed[kind]:
            wanted = "[E] or [E, 2]" if kind == "edge" else "[N, D]"
            raise SectorError(f"gives a result of shape {shape} for {which}; return {wanted}")
        if rows.dtype not in (torch.float32, torch.float64):
            raise SectorError(
                f"gives a result of {rows.dtype} for {which}; return float32 at least"
            )
    return made, widths


def outcome(model: nn.Module, sectors: Sequence[Sector], kind: Kind) -> Outcome:
    """Runs `model` on the sectors of one graph, forward and backward.

    Raises:
        SectorError: as `results`; the backward pass fails, or calls the exchange.
    """
    made, _ = results(model, sectors, kind)
    if kind == "edge":
        ids = [sector.edge_id[sector.owns_edge] for sector in sectors]
        made = [rows[sector.owns_edge] for rows, sector in zip(made, sectors, strict=True)]
    else:
        ids = [sector.node_id[: sector.n_owned] for sector in sectors]
        made = [rows[: sector.n_owned] for rows, sector in zip(made, sectors, strict=True)]
    together = torch.cat(made)[torch.cat(ids).argsort()]
    return Outcome(together.detach(), _gradients(model, together))


def _gradients(model: nn.Module, rows: Tensor) -> dict[str, Tensor]:
    """Gives the gradient of each parameter; zero where it has none, which the contract refuses."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    found = backward(named, rows, weights)
    return {
        name: torch.zeros_like(value) if (got := found[name]) is None else got
        for name, value in named.items()
    }


def backward(
    named: dict[str, nn.Parameter], rows: Tensor, weights: Tensor
) -> dict[str, Tensor | None]:
    """Computes the gradient of each parameter from that of `rows`; None where it has none.

    Raises:
        SectorError: the backward pass fails, or calls the exchange.
    """
    if not rows.requires_grad:
        return dict.fromkeys(named)
    try:
        with no_exit():
            found = torch.autograd.grad(
                (rows * weights).sum(), [*named.values()], retain_graph=True, allow_unused=True
            )
    except SectorError:
        raise
    except Exception as error:
        raise SectorError(
            "fails in its backward pass; recompute no exchange (torch.utils.checkpoint), nor a "
            "layer of PyG, which one follows"
        ) from error
    return dict(zip(named, found, strict=True))


def compare(found: Outcome, expected: Outcome) -> Difference:
    """Measures how far an outcome is from the expected one; infinite where one is not finite."""
    largest = max((float(g.abs().max()) for g in expected.gradients.values()), default=0.0)
    least = max(_LEAST_SHARE * largest, _TINY)
    of_each = {
        name: relative(found.gradients[name], gradient, least)
        for name, gradient in expected.gradients.items()
    }
    return Difference(relative(found.rows, expected.rows), of_each)


def relative(found: Tensor, expected: Tensor, least: float = _TINY) -> float:
    """Measures the largest difference, relative to the largest value expected, or to `least`."""
    if found.numel() == 0:
        return 0.0
    same = (found == expected) | (found.isnan() & expected.isnan())
    apart = torch.where(same, 0.0, (found - expected).abs()).nan_to_num(nan=torch.inf)
    scale = expected[expected.isfinite()].abs().max() if expected.isfinite().any() else apart.max()
    return float(apart.max() / scale.clamp_min(least))
