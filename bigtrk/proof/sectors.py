"""Random graphs to prove models on, and runs of a model on the sectors of a graph in one process.

Shapes: N nodes of a sector of which the first n_owned are owned, H the width of an exchange.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn

from bigtrk.graphs.event_graph import EventGraph, Sector
from bigtrk.models.protocol import Exchange, SectorInputs
from bigtrk.user_code import no_exit
from partition.sectors import cut

KINDS = (
    "directed",
    "symmetric",
    "hub",
    "self loops",
    "repeated edges",
    "isolated nodes",
    "empty sector",
    "sector of one node",
    "sector without edges",
    "no edges",
)
# No usual widths of layers: tensors with these numbers of rows are taken for nodes or edges. Edges
# are so few that no sector knows all nodes.
N_NODES, N_EDGES = 97, 158
_IN_BACKWARD = (
    "calls the exchange in its backward pass, where ranks would wait for each other forever; keep "
    "the exchange outside of what torch.utils.checkpoint recomputes"
)


class SectorError(Exception):
    """A model fails in a sector; the cause is the model's own error, if there is one."""


@cache
def draw(
    kind: str, parts: int, n_node_features: int, n_edge_features: int
) -> tuple[EventGraph, list[Sector]]:
    """Draws a graph in float64 and cuts it into `parts` sectors; the same in every call."""
    generator = torch.Generator().manual_seed(100 * KINDS.index(kind) + parts)
    owner = torch.randint(
        parts - (kind in ("empty sector", "sector of one node")), (N_NODES,), generator=generator
    )
    if kind == "sector of one node":
        owner[N_NODES // 2] = parts - 1
    if kind == "sector without edges":
        owner = torch.arange(N_NODES) % parts
    ends = _edges(kind, owner, generator)[:, : 0 if kind == "no edges" else N_EDGES]
    ends = ends[:, torch.randperm(ends.shape[1], generator=generator)]

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
    """Returns edges [2, any]: first those that make the kind of graph, then distinct others."""
    nodes = torch.arange(N_NODES)
    ends = torch.cartesian_prod(nodes, nodes).T
    source, destination = ends
    joined = source != destination
    if kind == "symmetric":
        joined &= source < destination
    if kind == "isolated nodes":
        joined &= (ends % 3 > 0).all(0)
    if kind == "sector without edges":
        joined &= (owner[ends] > 0).all(0)
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


def shuffled(whole: Sector) -> Sector:
    """Reorders the nodes and the edges of a whole graph, in the same way in every call."""
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


class _Stopped(BaseException):
    """Ends a pass that cannot go on without the others; `except Exception` does not catch it."""


class _Pass(Thread):
    """A pass of a model over a sector: a thread that is resumed from exchange to exchange.

    sent: the rows that it gave the exchange; None once it has ended, with `made` or an `error`.
    """

    def __init__(self, run: Callable[[Exchange], Any]) -> None:
        super().__init__(daemon=True)
        self.made: Any = None
        self.sent: Tensor | None = None
        self.error: BaseException | None = None
        self._run, self._is_over = run, False
        self._brought: SimpleQueue[Tensor | None] = SimpleQueue()
        self._paused: SimpleQueue[None] = SimpleQueue()
        # A thread does not inherit these.
        self._has_gradients = torch.is_grad_enabled()
        self._device = torch.cuda.current_device() if torch.cuda.is_initialized() else -1

    def resume(self, rows: Tensor | None) -> None:
        """Runs to the next exchange, or to the end. rows: the result of the last exchange."""
        if rows is None:
            self.start()
        else:
            self._brought.put(rows)
        self._paused.get()

    def stop(self) -> None:
        if self.is_alive():
            self._is_over = True
            self._brought.put(None)
            self.join()

    def run(self) -> None:
        with torch.set_grad_enabled(self._has_gradients), torch.cuda.device(self._device):
            try:
                with suppress(_Stopped), no_exit():
                    self.made = self._run(self._exchange)
            except BaseException as error:
                self.error = error
        self.sent, self._is_over = None, True
        self._paused.put(None)

    def _exchange(self, owned: Tensor) -> Tensor:
        if self._is_over:  # a backward pass recomputes it
            raise SectorError(_IN_BACKWARD)
        self.sent = owned
        self._paused.put(None)
        rows = self._brought.get()
        if rows is None:
            raise _Stopped
        return rows


def run_sectors(
    passes: Sequence[Callable[[Exchange], Any]], sectors: Sequence[Sector], alone: bool = False
) -> tuple[list[Any], list[int]]:
    """Runs each pass on its sector of one graph, exchanging by the sectors' halo plans. Returns the
    passes' results and the exchanges' widths. Gradients flow through the exchanges unless `alone`.
    Raises SectorError if a model fails in a sector, gives the exchange rows other than the owned
    ones or of different widths in two sectors, or exchanges more often in one of them.
    """
    running, widths = [_Pass(run) for run in passes], list[int]()
    brought: Sequence[Tensor | None] = [None] * len(passes)
    try:
        while True:
            for each, sector, rows in zip(running, sectors, brought, strict=True):
                each.resume(rows)
                if isinstance(each.error, Exception):
                    raise SectorError(f"fails for {told_sector(sector)}") from each.error
                if each.error is not None:
                    raise each.error
            sent = [each.sent for each in running if each.sent is not None]
            if not sent:
                return [each.made for each in running], widths
            for each, sector in zip(running, sectors, strict=True):
                which, rows = told_sector(sector), each.sent
                if rows is None:
                    raise SectorError(
                        f"calls the exchange less often for {which} than for another, so ranks "
                        f"would wait for ever; call it equally often for every sector"
                    )
                if rows.dim() != 2 or rows.shape != (sector.n_owned, *sent[0].shape[-1:]):
                    raise SectorError(
                        f"calls the exchange with shape {list(rows.shape)} for {which}; "
                        f"pass only the owned rows, [n_owned, H], with one H for all sectors"
                    )
            brought = exchanged(sent, sectors, alone)
            widths.append(sent[0].shape[1])
    finally:
        for each in running:
            each.stop()


def exchanged(
    owned: Sequence[Tensor], sectors: Sequence[Sector], alone: bool = False
) -> list[Tensor]:
    """Returns all rows [N, H] of each sector from all owned rows [n_owned, H], by halo plan."""
    sent = [
        (rows.detach() if alone else rows)[sector.send_index].split(sector.send_splits)
        for rows, sector in zip(owned, sectors, strict=True)
    ]
    return [torch.cat([rows, *(halo[k] for halo in sent)]) for k, rows in enumerate(owned)]


def told_sector(sector: Sector) -> str:
    halo = sector.n_nodes - sector.n_owned
    return f"a sector of {sector.n_owned} nodes, {halo} halo nodes and {sector.n_edges} edges"


def inputs_of(sector: Sector, model: nn.Module) -> SectorInputs:
    """Returns a sector's inputs in the type and on the device of `model`, as copies."""
    weight = next(model.parameters(), torch.empty(0))
    x, edge_features = (
        rows.to(weight, copy=True) for rows in (sector.node_features, sector.edge_features)
    )
    edge_index = sector.edge_index.to(weight.device, copy=True)
    return SectorInputs(x, edge_features, edge_index, sector.n_owned)
