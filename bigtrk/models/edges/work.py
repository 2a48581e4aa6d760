"""Counts what a launch of each fused kernel computes and moves, from its own schedule.

Three counts of bytes: `least` has each stream of edges, index, row of a node, weight and result
once. `moved` has what programs read from memory and write to it: rows of nodes as their blocks read
them (`Reads`), and partial sums. `again` is what a program reads and writes of its own block after
the first time. That stays in a GPU's L2 where this holds the blocks of all programs at work
(`block_bytes`); of rows too wide for that it is among what is moved.

Operations are those of matrix products at the rows' own width, though programs compute them up to
the next power of two.

Shapes: E edges, N nodes, H = hidden.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from bigtrk.models.edges import schedule

_INDEX, _POSITION, _SUM = 8, 4, 4  # bytes of an end, of a place in a segment, of a float32


class Work(NamedTuple):
    """The counts of a launch. bf16: its products are of bfloat16."""

    kernel: str
    bf16: bool
    flops: float
    least: float
    moved: float
    again: float = 0.0


class Reads(NamedTuple):
    """Rows that a launch reads: how many different ones, and how many reads go to memory, since the
    row is read for the first time or the L2 has lost it.
    """

    distinct: float
    moved: float


class Ends(NamedTuple):
    """The rows of nodes that a pass over edges reads at their sources and destinations."""

    source: Reads
    destination: Reads

    @property
    def distinct(self) -> float:
        return self.source.distinct + self.destination.distinct

    @property
    def moved(self) -> float:
        return self.source.moved + self.destination.moved


@dataclass(frozen=True)
class Shape:
    """An MLP of edges: `layers` linear layers of rows [H] of `dtype`; `inputs`: 2 where it reads
    the encoded edges beside the state, else 1. hopper: as schedule.whole_rows says.
    """

    hidden: int
    layers: int
    inputs: int
    dtype: torch.dtype
    hopper: bool = True

    @property
    def row(self) -> int:
        """Returns the bytes of a row."""
        return self.hidden * self.dtype.itemsize

    @property
    def weights(self) -> int:
        """Returns the bytes of the weights and biases."""
        return _SUM * self.hidden * self._lines

    @property
    def _lines(self) -> int:
        return schedule.partial_lines(self.inputs, self.layers, self.hidden)

    @property
    def whole(self) -> schedule.WholeRows | None:
        """Returns the tile of the backward pass over whole rows; None where products run through
        memory.
        """
        return schedule.whole_rows(self.hidden, self.layers, self.dtype, self.hopper)

    @property
    def forward_rows(self) -> int:
        """Returns the edges that a program of the forward pass computes at a time."""
        return schedule.forward_rows(self.hidden, self.layers, self.dtype, self.hopper)

    @property
    def backward_rows(self) -> int:
        """Returns the edges that a program of the backward pass computes at a time."""
        return schedule.backward_rows(self.hidden, self.layers, self.dtype, self.hopper)

    def rows_of_program(self, n_edges: int) -> int:
        """Returns the edges of a program of the backward pass."""
        return schedule.rows_of_program(n_edges, self.backward_rows, self.hidden, self.dtype)

    def programs(self, n_edges: int) -> int:
        """Returns the number of programs of the backward pass."""
        return -(-n_edges // self.rows_of_program(n_edges))

    def block_bytes(self) -> int:
        """Returns the bytes that a program of the backward pass uses several times: of a block its
        inputs, gradient and normalised rows, and its part of the weights' gradients. What whole
        rows use again is in registers and shared memory.
        """
        if self.whole:
            return 0
        kept = self.layers - 1
        of_row = (self.inputs + 1 + kept) * self.row + kept * _SUM
        return schedule.block_rows(self.hidden, self.dtype) * of_row + self.weights

    def _work(
        self, kernel: str, products: float, least: float, moved: float, again: float = 0.0
    ) -> Work:
        flops = 2.0 * products * self.hidden**2
        return Work(kernel, self.dtype == torch.bfloat16, flops, least, moved, again)

    def forward(self, n_edges: int, ends: Ends) -> Work:
        """Counts fused.forward's launch. Rows between products are written where the result will
        be, and are still in the L2 when they are read.
        """
        streams = n_edges * ((self.inputs + 1) * self.row + 2 * _INDEX) + self.weights
        products = n_edges * (self.inputs + self.layers - 1)
        least, moved = (streams + rows * self.row for rows in (ends.distinct, ends.moved))
        return self._work("forward", products, least, moved)

    def backward(self, n_edges: int, ends: Ends, *, given: bool) -> Work:
        """Counts fused.backward's first launch. given: the next layer gives the gradient."""
        kept, tables = self.layers - 1, 2 if given else 1
        after = self.row if given else 0
        of_edge = (self.inputs + 2) * self.row + after + 2 * _INDEX  # made, and the gradient
        streams = n_edges * of_edge + self.weights + (self.hidden * self.row if given else 0)
        programs = self.programs(n_edges)
        products = given + self.inputs + max(0, self.layers - 2) + 2 * kept + self.inputs
        least = streams + self.weights + tables * ends.distinct * self.row
        if self.whole:
            launched = self._launched(self.whole, streams + tables * ends.moved * self.row, n_edges)
            moved = launched + programs * self.weights
            if self.whole.sums_apart:
                products += given + self.inputs + 2  # up to the second weight's gradient
            return self._work("backward", n_edges * products, least, moved)
        block = schedule.block_rows(self.hidden, self.dtype)
        # At the end the L2 writes back what programs kept of their last blocks.
        scratch = programs * (self.weights + min(block, n_edges) * kept * (self.row + _SUM))
        moved = streams + scratch + tables * ends.moved * self.row
        again = self._again(n_edges, programs, block)
        if self.hidden > schedule.WIDEST_IN_L2:
            moved, again = moved + again, 0.0
        return self._work("backward", n_edges * products, least, moved, again)

    def _launched(self, whole: schedule.WholeRows, once: float, n_edges: int) -> float:
        """Counts the bytes of all launches over whole rows, of which one moves `once`."""
        moved = once * (2 if whole.sums_apart else 1)
        if whole.sums_apart:
            moved -= n_edges * self.row  # the first writes no gradient
        if not whole.sums_first:
            moved += n_edges * self.inputs * 2 * self.row
        return moved

    def _again(self, n_edges: int, programs: int, block: int) -> float:
        """Counts what programs read and write of their blocks after the first time."""
        kept, size = self.layers - 1, schedule.tile(self.hidden, self.dtype)
        # A weight's gradient reads both of its factors once for each row of its squares.
        of_weight = 2 * -(-self.hidden // size.side) * self.row
        normalised = kept * (self.row + _SUM) + max(0, kept - 1) * self.row
        through = kept * (of_weight + 3 * self.row + _SUM)  # gradients are read and replaced
        blocks = max(0, -(-n_edges // block) - programs)
        sums = 2 * blocks * self.weights
        return n_edges * (normalised + through + self.inputs * of_weight) + sums

    def sum_products(self, n_rows: int, terms: int) -> Work:
        """Counts the launch that sums products of rows."""
        weights = terms * self.hidden * self.row
        moved = float(n_rows * (terms + 1) * self.row + weights)
        return self._work("sum_products", n_rows * terms, moved, moved)

    def sum_partials(self, n_edges: int, *, adds: bool) -> Work:
        """Counts the launch that sums the programs' parts of the weights' gradients."""
        results = self.weights * (2 if adds else 1)
        moved = float(self.programs(n_edges) * self.weights + results)
        return Work("sum_partials", False, 0.0, moved, moved)

    def sum_at_ends(self, n_nodes: int, edges: Reads, *, streams: int, adds: bool) -> Work:
        """Counts the launch that sums `streams` of edges at both ends; edges: their rows, of which
        each is read at both.
        """
        segments = 2 * (2 * n_nodes + 1 + edges.distinct) * _POSITION  # with the order of turns
        sums = 2 * n_nodes * self.hidden * _SUM * streams * (2 if adds else 1)
        parts = streams * -(-self.hidden // schedule.summed_columns(self.hidden, self.dtype))
        least = segments + sums + streams * edges.distinct * self.row
        moved = parts * segments + sums + streams * edges.moved * self.row
        return Work("sum_at_ends", False, 0.0, least, moved)


# Counted on event 1000's 3.0 M edges and on a simulated event of 6.8 M (docs/results/kernels.json):
# the shares of edges whose source's row comes from memory again, and of those whose own row does
# for the second of their sums.
SOURCES_AGAIN_FORWARD, SOURCES_AGAIN_BACKWARD, EDGES_AGAIN = 0.03, 0.23, 0.24


def assumed_ends(n_nodes: int, n_edges: int, sources_again: float) -> Ends:
    """Returns the rows of nodes that a pass over the edges of an event usually reads."""
    sources = Reads(n_nodes, n_nodes + sources_again * n_edges)
    return Ends(sources, Reads(n_nodes, n_nodes))  # edges are sorted by their destinations


def assumed_edges(n_edges: int) -> Reads:
    """Returns the rows of edges that their sums at both ends usually read."""
    return Reads(n_edges, (1 + EDGES_AGAIN) * n_edges)
