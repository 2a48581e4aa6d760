"""The halo exchange: forward sends owned rows, backward returns the gradients of halo rows.

A rank has one or more sectors of an event. Halo rows owned by another sector of the same rank are
copied; rows of other ranks come in one collective operation for all of its sectors.

Shapes: N rows of a sector (n_owned owned, then halo), H features, S rows sent, K rows kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.graphs.event_graph import Sector
from bigtrk.models.edges.plain import add_at
from bigtrk.models.protocol import Arrival
from bigtrk.parallel.world import Stopwatch, World
from bigtrk.tracing import waiting


class Piece(NamedTuple):
    """Consecutive halo rows of a sector: rows `start` to `start` + `length` of the rows that this
    rank `kept` or, if not `kept`, of the rows that it received.
    """

    kept: bool
    start: int
    length: int


@dataclass(frozen=True)
class HaloPlan:
    """The rows that a rank's sectors send and receive, grouped by rank.

    packed [S + K] int64: rows of the sectors' owned nodes, numbered one sector after another. The S
    rows to send come first, grouped by receiving rank as `send_splits` counts them; then the K rows
    kept for sectors of this rank. recv_splits: number of rows received from each rank. halos: the
    pieces of each sector's halo, in order. group: the ranks that share the event; None if this rank
    has all of it. overlaps: whether layers that can compute while rows travel do so.
    """

    packed: Tensor
    send_splits: tuple[int, ...]
    recv_splits: tuple[int, ...]
    halos: tuple[tuple[Piece, ...], ...]
    group: dist.ProcessGroup | None
    stopwatch: Stopwatch
    overlaps: bool = False

    def __call__(self, owned: list[Tensor]) -> list[Tensor]:
        """Appends halo rows to each sector: [n_owned, H] -> [N, H]; differentiable. Collective."""
        nodes, arrival = self.begin(owned)
        arrival.wait()
        return nodes

    def begin(self, owned: list[Tensor]) -> tuple[list[Tensor], Arrival]:
        """Starts the exchange; returns rows [N, H] whose halo is filled when the Arrival ends."""
        with torch.no_grad():
            rows = owned[0] if len(owned) == 1 else torch.cat(owned)
            packed, n_sent = rows.index_select(0, self.packed), sum(self.send_splits)
            del rows  # before memory is taken for the received ones
            sent, kept = packed[:n_sent], packed[n_sent:]
            received, work = self._send(sent, self.send_splits, self.recv_splits)
        nodes: list[Tensor] = list(_Exchange.apply(self, *owned))
        # Filled behind autograd's back: FSDP2 gives layers views of these, which it would call
        # modified, though nothing has read them yet.
        arrival = PendingHalo(self, [rows.data for rows in nodes], received, kept, work)
        if work is None or not self.overlaps:
            arrival.wait()
        return nodes, arrival

    def swap(self, rows: Tensor, to: tuple[int, ...], of: tuple[int, ...]) -> Tensor:
        """Sends rows split by `to`; waits for rows split by `of`, and returns these."""
        received, work = self._send(rows.contiguous(), to, of)
        self.wait_for(work)
        return received

    def wait_for(self, work: dist.Work | None) -> None:
        if work is not None:
            with self.stopwatch.time("exchange"), waiting():
                work.wait()

    def _send(
        self, rows: Tensor, to: tuple[int, ...], of: tuple[int, ...]
    ) -> tuple[Tensor, dist.Work | None]:
        """Starts to send rows split by `to`; returns the buffer for received rows, split by `of`,
        and the work to wait for.
        """
        if self.group is None:
            return rows, None
        received = rows.new_empty(sum(of), *rows.shape[1:])
        with self.stopwatch.time("exchange"):
            work = dist.all_to_all_single(
                received, rows, list(of), list(to), self.group, async_op=True
            )
        return received, work

    def with_empty(self, n: int) -> "HaloPlan":
        """Returns this plan with `n` more sectors, which have no rows.

        They take part in the exchange, too. ZeRO-2 averages gradients in the order in which the
        backward pass makes them. All ranks need the same order, and so the same autograd graph.
        """
        return replace(self, halos=(*self.halos, *((),) * n))


def no_halo(world: World) -> HaloPlan:
    """Makes the plan of a sector without halo: a whole event, or a sector trained as if it were
    one. `with_empty` adds empty sectors to the plan.
    """
    none = torch.zeros(0, dtype=torch.int64, device=world.device)
    return HaloPlan(none, (), (), ((),), None, world.stopwatch)


def halo_plan(sectors: Sequence[Sector], ranks: int, world: World) -> HaloPlan:
    """Makes the plan by which a rank's sectors of an event exchange rows with each other and with
    the other `ranks` - 1 ranks that share it; each has a `group` of sectors (graphs/sector.py).
    """
    parts = sectors[0].parts
    rank_of = [part * ranks // parts for part in range(parts)]
    here = rank_of[sectors[0].part]
    outgoing = _outgoing(sectors, rank_of)
    kept, outgoing[here] = outgoing[here], outgoing[here][:0]
    halos, recv_splits = _incoming(sectors, rank_of)
    return HaloPlan(
        torch.cat([*outgoing, kept]).to(world.device),
        tuple(len(rows) for rows in outgoing),
        recv_splits,
        halos,
        world.groups[ranks] if ranks > 1 else None,
        world.stopwatch,
        world.overlaps(ranks),
    )


def _outgoing(sectors: Sequence[Sector], rank_of: list[int]) -> list[Tensor]:
    """Lists, for each rank (this one, too), the rows of owned nodes that it asks for: one of our
    sectors after another, and within each by the asking sector.
    """
    asked: list[list[Tensor]] = [[] for _ in range(rank_of[-1] + 1)]
    first = 0
    for sector in sectors:
        for receiver, rows in enumerate(sector.send_index.split(sector.send_splits)):
            asked[rank_of[receiver]].append(first + rows)
        first += sector.n_owned
    return [torch.cat(rows) for rows in asked]


def _incoming(
    sectors: Sequence[Sector], rank_of: list[int]
) -> tuple[tuple[tuple[Piece, ...], ...], tuple[int, ...]]:
    """Returns the pieces of each sector's halo, ordered by owner as `_outgoing` sends them; and the
    number of rows received from each rank.
    """
    here, start = rank_of[sectors[0].part], {False: 0, True: 0}
    recv_splits = [0] * (rank_of[-1] + 1)
    halos: list[list[Piece]] = [[] for _ in sectors]
    for owner, rank in enumerate(rank_of):
        kept = rank == here
        for sector, halo in zip(sectors, halos, strict=True):
            length = sector.recv_splits[owner]
            halo.append(Piece(kept, start[kept], length))
            start[kept] += length
            recv_splits[rank] += 0 if kept else length
    return tuple(_joined_pieces(halo) for halo in halos), tuple(recv_splits)


def _joined_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Joins pieces that follow each other, and drops empty ones."""
    joined: list[Piece] = []
    for piece in pieces:
        if not piece.length:
            continue
        last = joined[-1] if joined else None
        if last and (last.kept, last.start + last.length) == (piece.kept, piece.start):
            joined[-1] = last._replace(length=last.length + piece.length)
        else:
            joined.append(piece)
    return tuple(joined)


class PendingHalo:
    """Halo rows that still have to be written into `nodes` [N, H] of each sector: the `received`
    rows, once `work` is done, and the `kept` rows.
    """

    def __init__(
        self,
        plan: HaloPlan,
        nodes: list[Tensor],
        received: Tensor,
        kept: Tensor,
        work: dist.Work | None,
    ) -> None:
        self._plan, self._nodes, self._work = plan, nodes, work
        self._received, self._kept = received, kept
        self.is_awaited = True

    def wait(self) -> None:
        if not self.is_awaited:
            return
        self.is_awaited = False
        self._plan.wait_for(self._work)
        for nodes, pieces in zip(self._nodes, self._plan.halos, strict=True):
            at = len(nodes) - sum(piece.length for piece in pieces)  # behind the owned rows
            for kept, start, length in pieces:
                source = self._kept if kept else self._received
                nodes[at : at + length] = source[start : start + length]
                at += length
        del self._nodes, self._received, self._kept, self._work  # a graph of layers holds this


class _Exchange(torch.autograd.Function):
    # all_to_all_single_autograd leaked under checkpointing (pytorch/torchtitan #1467).

    @staticmethod
    def forward(ctx, plan: HaloPlan, *owned: Tensor) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
        ctx.plan, ctx.n_owned = plan, [len(rows) for rows in owned]
        made = []
        for rows, pieces in zip(owned, plan.halos, strict=True):
            n_halo = sum(piece.length for piece in pieces)
            nodes = rows.new_empty(len(rows) + n_halo, *rows.shape[1:])
            nodes[: len(rows)] = rows
            made.append(nodes)
        return tuple(made)

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        plan, n_owned = ctx.plan, ctx.n_owned
        received, kept = _halo_gradients(plan, n_owned, gradients)
        returned = plan.swap(received, plan.recv_splits, plan.send_splits)
        owned = torch.cat([rows[:n] for rows, n in zip(gradients, n_owned, strict=True)])
        # A row that several sectors asked for collects a gradient from each of them, those of other
        # ranks first.
        add_at(owned, plan.packed, torch.cat([returned, kept]) if len(kept) else returned)
        return None, *owned.split(n_owned)


def _halo_gradients(
    plan: HaloPlan, n_owned: Sequence[int], gradients: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Returns the gradients of received and of kept halo rows, in the order of these rows."""
    found: dict[bool, list[tuple[int, Tensor]]] = {False: [], True: []}
    for gradient, n, pieces in zip(gradients, n_owned, plan.halos, strict=True):
        halos = gradient[n:].split([piece.length for piece in pieces])
        for piece, rows in zip(pieces, halos, strict=True):
            found[piece.kept].append((piece.start, rows))

    def in_order(pieces: list[tuple[int, Tensor]]) -> Tensor:
        rows = [piece for _, piece in sorted(pieces, key=lambda one: one[0])]
        return torch.cat(rows) if len(rows) > 1 else (*rows, gradients[0][:0])[0]

    return in_order(found[False]), in_order(found[True])
