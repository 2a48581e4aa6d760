"""The sectors of a graph in one process: a thread runs each, one at a time, from exchange to
exchange, so that a model of the simple form runs as it is.

Shapes: N nodes of a sector of which the first n_owned are owned, H the width of an exchange.
"""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread

import torch
from torch import Tensor

from bigtrk.graphs.sector import Sector
from bigtrk.models.check import IN_BACKWARD
from bigtrk.models.protocol import Exchange
from bigtrk.user_code import no_exit

# Runs a model on a sector, with the exchange given, forward: its result.
Pass = Callable[[Exchange], Tensor]


class SectorError(Exception):
    """A sector cannot go on with the others: the message says which and why; its cause is what the
    model raised, if it did.
    """


class _Ended(BaseException):
    """Ends the pass of a sector whose others cannot go on; no `except Exception` catches it."""


class _SectorThread(Thread):
    """A sector's pass, which waits in each exchange until it is told to go on.

    Once it has ended its exchange fails, as a backward pass that computes it anew would call it:
    nobody would tell that to go on.
    """

    def __init__(self, run: Pass) -> None:
        super().__init__(daemon=True)
        self._run_pass = run
        self._brought: SimpleQueue[Tensor | None] = SimpleQueue()
        self._sent: SimpleQueue[Tensor | None] = SimpleQueue()
        self._over = False
        self._has_gradients = torch.is_grad_enabled()  # which each thread has for itself
        self.made: Tensor | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with torch.set_grad_enabled(self._has_gradients), no_exit():
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


def run_sectors(passes: Sequence[Pass], sectors: Sequence[Sector]) -> list[Tensor]:
    """Runs each pass on its sector, all of one graph, by the sectors' own halo plans; gradients
    flow through the exchanges.

    Raises:
        SectorError: a model fails in a sector, gives the exchange other rows than the owned ones or
            of another width than others do, or makes another number of exchanges.
    """
    threads = [_SectorThread(run) for run in passes]
    sent = [thread.begin() for thread in threads]
    try:
        while any(rows is not None for rows in sent):
            brought = exchanged(_checked(threads, sent, sectors), sectors)
            sent = [thread.go_on(rows) for thread, rows in zip(threads, brought, strict=True)]
        _raise_first(threads, sectors)
    finally:
        for thread, rows in zip(threads, sent, strict=True):
            if rows is not None and thread.is_alive():
                thread.go_on(None)
    return [thread.made for thread in threads]  # type: ignore[misc]  # all have ended well


def exchanged(owned: Sequence[Tensor], sectors: Sequence[Sector]) -> list[Tensor]:
    """Gives each sector all its rows [N, H], the halo's from the owned rows [n_owned, H] of the
    others, as their halo plans say.
    """
    sent = [
        rows[sector.send_index].split(sector.send_splits)
        for rows, sector in zip(owned, sectors, strict=True)
    ]
    return [torch.cat([rows, *(of[k] for of in sent)]) for k, rows in enumerate(owned)]


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
