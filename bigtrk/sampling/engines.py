"""The engines that sample ShaDow subgraphs: sparse products on any device, compiled code on CPUs.

Sparse products of torch follow Tripathy et al., section III-C. Their matrix A is split as A = B S,
so that repeated edges stay apart: B [N, E] leads from a node to the edges that end there, S [E, N]
from an edge to its source. A row of S has one nonzero, so products with S are look-ups. The
compiled sampler (shadow.c) runs on the threads that torch may use.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bigtrk.disk.hashing import signed
from bigtrk.native_code import NATIVE, compiled, pointers
from bigtrk.process import silence_sparse_warnings
from bigtrk.sampling.subgraphs import (
    Bulk,
    InEdges,
    Rows,
    Sampler,
    Subgraphs,
    Walk,
    distinct_below,
    drawn,
    first_rows,
)

silence_sparse_warnings()


class _Ones(NamedTuple):
    """A sparse matrix of zeros and ones: the places of its ones, sorted by row, then column."""

    row: Tensor
    column: Tensor
    shape: tuple[int, int]


@dataclass(frozen=True)
class Products:
    """The sampler (`Sampler`) that uses sparse products on `device`."""

    device: torch.device

    def __call__(self, graph: InEdges, roots: Rows, walk: Walk, key: int) -> Bulk:
        into, source = _incidence(graph, self.device)
        found = _sampled(into, source, torch.from_numpy(roots).to(self.device), walk, key)
        return Bulk(*(column.cpu().numpy() for column in found))


def _sampled(
    into: _Ones, source: Tensor, roots: Tensor, walk: Walk, key: int
) -> tuple[Tensor, ...]:
    """Returns the columns of the `Bulk` of subgraphs around `roots`, as tensors."""
    touched = _touched(into, source, roots, walk, key)
    # First come each root's edges whose destination is touched; then those whose source is, too.
    root, edge = _product(touched, into)
    n_nodes = touched.shape[1]
    cells, starts = touched.row * n_nodes + touched.column, root * n_nodes + source[edge]
    row = torch.searchsorted(cells, starts).clamp(max=len(cells) - 1)
    induced = (cells[row] == starts).nonzero()[:, 0]
    root, edge = root[induced], edge[induced]
    return (
        touched.column,
        _begins(touched.row, len(roots)),
        edge,
        _begins(root, len(roots)),
        row[induced],
        torch.searchsorted(cells, root * n_nodes + into.row[edge]),
    )


def _incidence(graph: InEdges, device: torch.device) -> tuple[_Ones, Tensor]:
    """Returns the matrix B [N, E], and the source node of each edge (the ones of S): [E]."""
    first, source = torch.from_numpy(graph.first).to(device), torch.from_numpy(graph.source)
    destination = torch.arange(graph.n_nodes, device=device).repeat_interleave(first.diff())
    edge = torch.arange(len(source), device=device)
    return _Ones(destination, edge, (graph.n_nodes, len(source))), source.to(device, torch.int64)


def _touched(into: _Ones, source: Tensor, roots: Tensor, walk: Walk, key: int) -> _Ones:
    """Returns F [R, N], with a one for each node that the walk from a root touches."""
    n_nodes, n_roots = into.shape[0], len(roots)
    at, owner = roots, torch.arange(n_roots, device=roots.device)  # Q: nodes reached, their roots
    keys = drawn(signed(key), roots)
    counter = torch.zeros_like(roots)  # of each root's first row
    found = [owner * n_nodes + at]
    for _ in range(walk.depth):
        begin = _begins(owner, n_roots)
        place = torch.arange(len(owner), device=roots.device) - begin[owner]
        one_each = _Ones(torch.arange(len(at), device=at.device), at, (len(at), n_nodes))
        steps = _product(one_each, into)
        draws = counter[owner] + walk.fanout * place
        row, edge = _chosen(steps, len(at), walk.fanout, keys[owner], draws)
        counter += walk.fanout * begin.diff()
        at, owner = source[edge], owner[row]
        found.append(owner * n_nodes + at)
    return _Ones(*_places(torch.unique(torch.cat(found)), n_nodes), (n_roots, n_nodes))


def _chosen(
    steps: tuple[Tensor, Tensor], n_rows: int, fanout: int, key: Tensor, counter: Tensor
) -> tuple[Tensor, Tensor]:
    """Draws `fanout` nonzeros of each row of P, or all if fewer; returns rows and columns."""
    begin = _begins(steps[0], n_rows)
    degree = begin.diff()
    many = degree > fanout
    row = torch.arange(n_rows, device=degree.device).repeat_interleave(degree.clamp(max=fanout))
    position = torch.arange(len(row), device=degree.device) - _begins(row, n_rows)[row]
    picks = distinct_below(degree[many], fanout, key[many], counter[many])
    position[many[row]] = picks.flatten()
    return row, steps[1][begin[row] + position]


def _product(a: _Ones, b: _Ones) -> tuple[Tensor, Tensor]:
    """Returns rows and columns of the nonzeros of A B, sorted by row, then column."""
    if not len(a.row) or not len(b.row):
        return a.row[:0], b.column[:0]
    row, column = torch.sparse.mm(_sparse(a), _sparse(b))._indices()
    cells = (row * b.shape[1] + column).sort()[0]  # their order depends on the device
    return _places(cells, b.shape[1])


def _sparse(matrix: _Ones) -> Tensor:
    places = torch.stack([matrix.row, matrix.column])
    ones = torch.ones(len(matrix.row), device=places.device)  # float: integers have no product
    return torch.sparse_coo_tensor(
        places, ones, matrix.shape, is_coalesced=True, check_invariants=False
    )


def _places(cells: Tensor, n_columns: int) -> tuple[Tensor, Tensor]:
    """Splits cell numbers, row * n_columns + column, into rows and columns."""
    row = cells // n_columns
    return row, cells - row * n_columns


def _begins(row: Tensor, n_rows: int) -> Tensor:
    """Returns where each of `n_rows` rows begins in ascending `row`, then where the last ends."""
    return torch.searchsorted(row, torch.arange(n_rows + 1, device=row.device))


CODE = "sampling", Path(__file__).with_name("shadow.c"), (), (NATIVE,)


@cache
def library() -> ctypes.CDLL | None:
    """Loads the compiled sampler; None if it cannot be compiled or loaded."""
    found = compiled(*CODE)
    if found is not None:
        found.shadow_sample.restype = ctypes.c_void_p
        found.shadow_collect.restype = None
    return found


def sample(graph: InEdges, roots: Rows, walk: Walk, key: int) -> Bulk:
    """Samples with the compiled code (`Sampler`); MemoryError if the walks do not fit memory."""
    found = library()
    assert found is not None, "not compiled"
    roots = np.ascontiguousarray(roots, np.int64)
    nodes, edges = np.zeros(len(roots), np.int64), np.zeros(len(roots), np.int64)
    handle = found.shadow_sample(
        *pointers(graph.first, graph.source),
        ctypes.c_long(graph.n_nodes),
        *pointers(roots),
        ctypes.c_long(len(roots)),
        ctypes.c_uint64(key),
        ctypes.c_int(walk.depth),
        ctypes.c_int(walk.fanout),
        ctypes.c_int(torch.get_num_threads()),
        *pointers(nodes, edges),
    )
    if not handle:
        raise MemoryError(f"{len(roots)} ShaDow subgraphs of {walk}: sample fewer at once")
    node_at, edge_at = first_rows(nodes), first_rows(edges)
    node = np.empty(node_at[-1], np.int64)
    edge, source, destination = (np.empty(edge_at[-1], np.int64) for _ in range(3))
    found.shadow_collect(
        ctypes.c_void_p(handle), *pointers(node_at, edge_at, node, edge, source, destination)
    )
    return Bulk(node, node_at, edge, edge_at, source, destination)


def fastest(device: torch.device) -> Sampler:
    """Returns the compiled sampler on a CPU with a C compiler, else `Products`."""
    if device.type == "cpu" and library() is not None:
        return sample
    return Products(device)


def sample_bulk(
    graph: InEdges, batches: Sequence[Rows], walk: Walk, key: int, engine: Sampler
) -> list[Subgraphs]:
    """Samples the subgraphs of each batch (a list of roots), each batch independent of others."""
    begin = first_rows([len(roots) for roots in batches])
    roots = np.concatenate([np.empty(0, np.int64), *batches])
    assert not len(roots) or 0 <= roots.min() <= roots.max() < graph.n_nodes, "roots are nodes"
    bulk = engine(graph, roots, walk, key)
    return [_piece(bulk, roots, begin[i], begin[i + 1]) for i in range(len(batches))]


def _piece(bulk: Bulk, roots: Rows, begin: int, end: int) -> Subgraphs:
    nodes = slice(bulk.node_at[begin], bulk.node_at[end])
    edges = slice(bulk.edge_at[begin], bulk.edge_at[end])
    ends = np.empty((2, edges.stop - edges.start), np.int64)
    np.subtract(bulk.source[edges], nodes.start, out=ends[0])
    np.subtract(bulk.destination[edges], nodes.start, out=ends[1])
    return Subgraphs(
        roots=torch.from_numpy(roots[begin:end]),
        node=torch.from_numpy(bulk.node[nodes]),
        node_at=torch.from_numpy(bulk.node_at[begin : end + 1] - nodes.start),
        edge=torch.from_numpy(bulk.edge[edges]),
        edge_index=torch.from_numpy(ends),
    )
