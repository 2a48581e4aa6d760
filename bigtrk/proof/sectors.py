"""Graphs to prove models on, and models run on the sectors of a graph in one process.

The graphs are random and have everything that has tripped halo exchanges. A thread runs each
sector, one at a time, from exchange to exchange, so that a model of the simple form runs as it is.

Shapes: N nodes of a sector of which the first n_owned are owned, H the width of an exchange.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from threading import Barrier, Lock, Thread

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph, Sector
from bigtrk.models.protocol import Exchange
from bigtrk.proof.difference import SectorError
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
# No usual widths of layers: the rows of nodes and of edges are known by their numbers. So few edges
# that no sector knows all nodes.
N_NODES, N_EDGES = 97, 158
_IN_BACKWARD = (
    "calls the exchange in its backward pass, where ranks would wait for each other; keep the "
    "exchange outside of what is recomputed (torch.utils.checkpoint)"
)


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
    """Lists edges [2, any], those first that make the kind; of the others no two are the same."""
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


class _Ended(BaseException):
    """Ends the pass of a sector whose others cannot go on; no `except Exception` catches it."""


class _Meeting:
    """The passes of sectors, one at a time in a thread each. All meet at each exchange, and where
    they end, with no rows.
    """

    def __init__(self, sectors: Sequence[Sector], alone: bool) -> None:
        self._sectors, self._alone = sectors, alone
        self._turn, self._barrier = Lock(), Barrier(len(sectors) + 1)
        self._sent: list[Tensor | None] = [None] * len(sectors)
        self._brought: list[Tensor] = []
        self._is_over = False
        # Each thread has these for itself.
        self._has_gradients = torch.is_grad_enabled()
        self._device = torch.cuda.current_device() if torch.cuda.is_initialized() else -1
        self._errors: list[BaseException | None] = [None] * len(sectors)
        self.failure: BaseException | None = None
        self.made: dict[int, Tensor] = {}
        self.widths: list[int] = []

    def attend(self, k: int, run: Callable[[Exchange], Tensor]) -> None:
        """Runs the pass of sector `k`."""
        gradients = torch.set_grad_enabled(self._has_gradients)
        with suppress(_Ended), self._turn, gradients, torch.cuda.device(self._device):
            try:
                with no_exit():
                    self.made[k] = run(partial(self._meet, k))
            except _Ended:
                raise
            except BaseException as error:
                self._errors[k] = error
            self._meet(k, None)

    def _meet(self, k: int, owned: Tensor | None) -> Tensor:
        if self._is_over:  # a backward pass computes it anew
            raise SectorError(_IN_BACKWARD)
        if self.failure is None:
            self._sent[k] = owned
            self._turn.release()
            self._barrier.wait()
            self._barrier.wait()
            self._turn.acquire()
        if self.failure is not None or self._is_over:
            raise _Ended
        return self._brought[k]

    def trade(self) -> bool:
        """Waits until all meet, and gives them their rows; False where they have ended or failed.

        A thread's own hooks (of `torch.utils.checkpoint`) must not see what is computed here.
        """
        self._barrier.wait()
        try:
            sent = self._checked()
            self._is_over = not sent
            if sent:
                self._brought = exchanged(sent, self._sectors, self._alone)
                self.widths.append(sent[0].shape[1])
        except BaseException as error:
            self.failure = error
        self._barrier.wait()
        return not self._is_over and self.failure is None

    def _checked(self) -> list[Tensor]:
        """Checks that all sectors send their owned rows, equally wide, or that all have ended."""
        for error, sector in zip(self._errors, self._sectors, strict=True):
            if isinstance(error, Exception):
                raise SectorError(f"fails for {told_sector(sector)}") from error
            if error is not None:
                raise error
        pairs = list(zip(self._sent, self._sectors, strict=True))
        sent = [rows for rows, _ in pairs if rows is not None]
        for rows, sector in pairs if sent else []:
            which = told_sector(sector)
            if rows is None:
                raise SectorError(
                    f"makes fewer exchanges for {which} than for others of its graph, so ranks "
                    f"would wait for each other"
                )
            if rows.dim() != 2 or len(rows) != sector.n_owned or rows.shape[1] != sent[0].shape[-1]:
                raise SectorError(
                    f"gives the exchange rows of shape {list(rows.shape)} for {which}; give it the "
                    f"owned rows [n_owned, H] alone, equally wide for each sector"
                )
        return sent


def run_sectors(
    passes: Sequence[Callable[[Exchange], Tensor]], sectors: Sequence[Sector], alone: bool = False
) -> tuple[list[Tensor], list[int]]:
    """Runs each pass on its sector, all of one graph, by the sectors' own halo plans; gradients
    flow through the exchanges, unless each is `alone`. Also gives the exchanges' widths.

    Raises:
        SectorError: a model fails in a sector, gives the exchange other rows than the owned ones or
            of another width than others do, or makes another number of exchanges.
    """
    meeting = _Meeting(sectors, alone)
    threads = [Thread(target=meeting.attend, args=each, daemon=True) for each in enumerate(passes)]
    for thread in threads:
        thread.start()
    while meeting.trade():
        pass
    for thread in threads:
        thread.join()
    if meeting.failure is not None:
        raise meeting.failure
    return [meeting.made[k] for k in range(len(passes))], meeting.widths


def exchanged(
    owned: Sequence[Tensor], sectors: Sequence[Sector], alone: bool = False
) -> list[Tensor]:
    """Gives each sector all its rows [N, H], the halo's from the owned rows [n_owned, H] of the
    others, as their halo plans say.
    """
    sent = [
        (rows.detach() if alone else rows)[sector.send_index].split(sector.send_splits)
        for rows, sector in zip(owned, sectors, strict=True)
    ]
    return [torch.cat([rows, *(halo[k] for halo in sent)]) for k, rows in enumerate(owned)]


def told_sector(sector: Sector) -> str:
    halo = sector.n_nodes - sector.n_owned
    return f"a sector of {sector.n_owned} nodes, {halo} halo nodes and {sector.n_edges} edges"
