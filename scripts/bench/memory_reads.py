"""Counts the reads of rows that go to a GPU's memory, from the order of a kernel's programs.

A row is in the L2 if no more than a window of bytes was moved since it was last read: of what was
moved since then the L2, which drops what was used longest ago, still has all. Programs are taken to
begin in the order of their numbers, as many as the GPU runs at once. Times are bytes: those that
were moved before.

Shapes: E edges, N nodes, R reads.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bigtrk.cost.data_sheets import A100
from bigtrk.models.edges import schedule
from bigtrk.models.edges.triton_passes import incidence_of
from bigtrk.models.edges.work import Ends, Reads, Shape

Integers = NDArray[np.int64]
SUMS_AT_WORK = 32 * A100.processors  # programs of one warp that an A100 runs at once


def reads(rows: Integers, time: Integers, window: float) -> Reads:
    """Counts the reads of `rows` [R] at a `time` [R] each. Rows of one time are read together."""
    order = np.lexsort((time, rows))
    rows, time = rows[order], time[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = rows[1:] != rows[:-1]
    lost = np.zeros(len(rows), dtype=bool)
    lost[1:] = np.diff(time) > window
    return Reads(int(first.sum()), int((first | lost).sum()))


@dataclass(frozen=True)
class Graph:
    """A graph's edge_index [2, E], sorted as sectors are, and its number of nodes."""

    edge_index: Integers
    n_nodes: int

    @property
    def n_edges(self) -> int:
        return int(self.edge_index.shape[1])

    def _ends(self, time: Integers, window: float) -> Ends:
        return Ends(*(reads(end, time, window) for end in self.edge_index))

    def forward(self, shape: Shape, l2_bytes: float) -> Ends:
        """Counts the rows of nodes that the forward pass reads, a tile at a time."""
        height = shape.forward_rows
        # An edge's streams, and at most the rows of both ends.
        of_edge = (shape.inputs + 3) * shape.row
        edge = np.arange(self.n_edges)
        return self._ends(edge // height * height * of_edge, l2_bytes)

    def backward(self, shape: Shape, at_work: int, l2_bytes: float) -> Ends:
        """Counts those of the backward pass, a block at a time, of which `at_work` programs are
        computed at once; what these use again has its place in the L2 before.
        """
        block = shape.backward_rows
        of_program = shape.rows_of_program(self.n_edges)
        edge = np.arange(self.n_edges)
        turn = edge // of_program // at_work * of_program + edge % of_program // block * block
        # State, encoded edges, what was made, its gradient and the next one's; four rows of nodes.
        of_edge = at_work * (shape.inputs + 7) * shape.row
        window = max(0.0, l2_bytes - at_work * shape.block_bytes())
        return self._ends(turn * of_edge, window)

    def sums(self, shape: Shape, l2_bytes: float) -> Reads:
        """Counts the rows of edges that their sums at both ends read, in the programs' turns; parts
        of them are read one after another. Of the L2 what programs that run at once read has its
        place before.
        """
        rows = self._in_turns()
        of_edge = min(schedule.SUMMED_BYTES, shape.row)
        at_once = SUMS_AT_WORK * len(rows) / max(2 * self.n_nodes, 1) * of_edge
        return reads(rows, np.arange(len(rows)) * of_edge, max(0.0, l2_bytes - at_once))

    def _in_turns(self) -> Integers:
        """Lists the edges [2 E] as programs read them."""
        incidence = incidence_of(torch.from_numpy(self.edge_index), self.n_nodes)
        turns = incidence.turns.numpy()
        starts, counts = np.zeros(len(turns), np.int64), np.zeros(len(turns), np.int64)
        offset = 0
        for end, segments in enumerate(incidence[:2]):
            own = turns % 2 == end
            starts[own] = segments.starts.numpy()[turns[own] // 2] + offset
            counts[own] = segments.starts.diff().numpy()[turns[own] // 2]
            offset = self.n_edges
        order: Integers = np.concatenate([segments.order.numpy() for segments in incidence[:2]])
        before = np.repeat(np.cumsum(counts) - counts, counts)
        place = np.repeat(starts, counts) + np.arange(counts.sum()) - before
        return order[place].astype(np.int64)


def shape_of(hidden: int, dtype: torch.dtype) -> Shape:
    """Returns the default MLP of edges, which reads the encoded ones too."""
    return Shape(hidden, layers=2, inputs=2, dtype=dtype)
