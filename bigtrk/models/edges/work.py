"""Counts launches over edges, on tensors without data, instead of starting them.

The bytes that a launch moves are its streams of edges and ends, rows of nodes as often as the L2
has lost them, weights, results and the programs' partial sums. What a program reads again of its
own block is in the L2. Operations are those of matrix products at the rows' own width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.models.edges.schedule import Shape, rows_of_program, summed_columns

_INDEX, _POSITION, _SUM = 8, 4, 4  # bytes of an end, of a place in a segment, of a float32
# Counted on event 1000's 3.0 M edges and on a simulated event of 6.8 M: the shares of edges whose
# source's row comes from memory again, and of those whose own row does for their second sum.
_SOURCES_AGAIN_FORWARD, _SOURCES_AGAIN_BACKWARD, _EDGES_AGAIN = 0.03, 0.23, 0.24


class Work(NamedTuple):
    """The operations and bytes of a launch. bf16: its products are of bfloat16."""

    bf16: bool
    flops: float
    moved: float


Note = Callable[[Work], None]
_NOTE: ContextVar[Note | None] = ContextVar("note", default=None)


@contextmanager
def counting(note: Note) -> Iterator[None]:
    """Computes passes over meta tensors as on a GPU: each launch is noted, and not started."""
    before = _NOTE.set(note)
    try:
        yield
    finally:
        _NOTE.reset(before)


def counts(device: torch.device) -> bool:
    """Whether launches on `device` are counted."""
    return device.type == "meta" and _NOTE.get() is not None


def as_on_gpu(device: torch.device) -> bool:
    """Whether `device` is a GPU, or stands for one while launches are counted."""
    return device.type == "cuda" or counts(device)


def note(work: Work) -> None:
    """Notes a launch; only where they are counted."""
    if noted := _NOTE.get():
        noted(work)


def forward(shape: Shape, n_edges: int, n_nodes: int) -> Work:
    """Counts fused.forward's launch."""
    moved: float = n_edges * ((shape.inputs + 1) * _row(shape) + 2 * _INDEX) + _weights(shape)
    moved += _ends(n_edges, n_nodes, _SOURCES_AGAIN_FORWARD) * _row(shape)
    return _work(shape, n_edges * (shape.inputs + shape.layers - 1), moved)


def backward(shape: Shape, n_edges: int, n_nodes: int, *, given: bool) -> Work:
    """Counts fused.backward's launches. given: the next layer gives the gradient."""
    row, inputs, tile = _row(shape), shape.inputs, shape.tile
    # The inputs, what was made, the gradient and the next layer's.
    once: float = n_edges * ((inputs + 2 + given) * row + 2 * _INDEX)
    once += _weights(shape) + given * shape.hidden * row
    once += (1 + given) * _ends(n_edges, n_nodes, _SOURCES_AGAIN_BACKWARD) * row
    programs = -(-n_edges // rows_of_program(n_edges, shape.hidden, tile.height))
    moved = once + programs * _weights(shape)
    products = given + 2 * inputs + max(0, shape.layers - 2) + 2 * (shape.layers - 1)
    if tile.sums_apart:
        moved += once - n_edges * row  # the first launch writes no gradient
        products += given + inputs + 1  # up to the last weight's gradient
    if not tile.sums_first:
        moved += n_edges * inputs * 2 * row
    return _work(shape, n_edges * products, moved)


def sum_partials(partials: Tensor, *, adds: bool) -> Work:
    """Counts the launch that sums programs' parts [programs, lines, H]."""
    programs, *sums = partials.shape
    return Work(False, 0.0, _SUM * prod(sums) * (programs + 1 + adds))


def of_nodes(tensors: Sequence[Tensor], products: int, dtype: torch.dtype) -> Work:
    """Counts a launch over nodes: the tensors that it touches, and its products of rows [H]."""
    flops = 2.0 * products * tensors[0].shape[1] ** 2
    return Work(dtype == torch.bfloat16, flops, sum(tensor.nbytes for tensor in tensors))


def sum_at_ends(values: Tensor, sums: Tensor, *, adds: bool) -> Work:
    """Counts the launch that sums edges [M, H] at both ends, each in `sums` [N, H]."""
    n_edges, hidden = values.shape
    segments = 2 * (2 * len(sums) + 1 + n_edges) * _POSITION  # with the order of turns
    parts = -(-hidden // summed_columns(hidden, values.dtype))
    rows = (1 + _EDGES_AGAIN) * values.nbytes
    return Work(False, 0.0, parts * segments + 2 * sums.nbytes * (1 + adds) + rows)


def _work(shape: Shape, products: int, moved: float) -> Work:
    return Work(shape.dtype == torch.bfloat16, 2.0 * products * shape.hidden**2, moved)


def _row(shape: Shape) -> int:
    return shape.hidden * shape.dtype.itemsize


def _weights(shape: Shape) -> int:
    """Returns the bytes of the weights and biases."""
    return _SUM * shape.hidden * shape.lines


def _ends(n_edges: int, n_nodes: int, sources_again: float) -> float:
    """Counts the rows of nodes that a pass reads; edges are sorted by their destinations."""
    return 2 * n_nodes + sources_again * n_edges
