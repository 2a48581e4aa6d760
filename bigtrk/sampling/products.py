"""ShaDow by products of torch's sparse matrices (Tripathy et al., section III-C), on any device.

Their A is split as A = B S, so that repeated edges stay apart: B [N, E] leads from a node to the
edges that end there, S [E, N] from an edge to its source. A row of S has one nonzero, so products
with S are look-ups.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.disk.hashing import signed
from bigtrk.process.sparse_warnings import silence_sparse_warnings
from bigtrk.sampling.draws import distinct_below, drawn
from bigtrk.sampling.subgraphs import InEdges, Rows
from bigtrk.sampling.walk import Bulk, Walk

silence_sparse_warnings()


class _Ones(NamedTuple):
    """A matrix of zeros and ones: the places of its ones, sorted by row, then column."""

    row: Tensor
    column: Tensor
    shape: tuple[int, int]


@dataclass(frozen=True)
class Products:
    """The engine of sparse products (walk.Sampler), computed on `device`."""

    device: torch.device

    def __call__(self, graph: InEdges, roots: Rows, walk: Walk, key: int) -> Bulk:
        into, source = _incidence(graph, self.device)
        found = _sampled(into, source, torch.from_numpy(roots).to(self.device), walk, key)
        return Bulk(*(column.cpu().numpy() for column in found))


def _sampled(
    into: _Ones, source: Tensor, roots: Tensor, walk: Walk, key: int
) -> tuple[Tensor, ...]:
    """Samples the columns of a bulk."""
    touched = _touched(into, source, roots, walk, key)
    # First come each root's edges whose destination is touched; then those whose source is, too.
    root, edge = _product(touched, into)
    cells, starts = _cells(touched), root * touched.shape[1] + source[edge]
    row = torch.searchsorted(cells, starts).clamp(max=len(cells) - 1)
    induced = (cells[row] == starts).nonzero()[:, 0]
    root, edge = root[induced], edge[induced]
    return (
        touched.column,
        _begins(touched.row, len(roots)),
        edge,
        _begins(root, len(roots)),
        row[induced],
        torch.searchsorted(cells, root * touched.shape[1] + into.row[edge]),
    )


def _incidence(graph: InEdges, device: torch.device) -> tuple[_Ones, Tensor]:
    """Returns B, and the columns of S's ones: [E]."""
    first, source = torch.from_numpy(graph.first).to(device), torch.from_numpy(graph.source)
    destination = torch.arange(graph.n_nodes, device=device).repeat_interleave(first.diff())
    edge = torch.arange(len(source), device=device)
    return _Ones(destination, edge, (graph.n_nodes, len(source))), source.to(device, torch.int64)


def _touched(into: _Ones, source: Tensor, roots: Tensor, walk: Walk, key: int) -> _Ones:
    """Computes F [R, N]: the nodes that the walk from each root touches."""
    n_nodes, n_roots = into.shape[0], len(roots)
    at, owner = roots, torch.arange(n_roots, device=roots.device)  # Q: its columns, their roots
    keys = drawn(signed(key), roots)
    counter = torch.zeros_like(roots)  # of each root's first row
    found = [owner * n_nodes + at]
    for _ in range(walk.depth):
        begin = _begins(owner, n_roots)
        place = torch.arange(len(owner), device=roots.device) - begin[owner]
        steps = _product(_one_each(at, n_nodes), into)
        draws = counter[owner] + walk.fanout * place
        row, edge = _chosen(steps, len(at), walk.fanout, keys[owner], draws)
        counter += walk.fanout * begin.diff()
        at, owner = source[edge], owner[row]
        found.append(owner * n_nodes + at)
    return _Ones(*_places(torch.unique(torch.cat(found)), n_nodes), (n_roots, n_nodes))


def _chosen(
    steps: tuple[Tensor, Tensor], n_rows: int, fanout: int, key: Tensor, counter: Tensor
) -> tuple[Tensor, Tensor]:
    """Draws `fanout` nonzeros of each row of P, all of a row that has no more: rows, columns."""
    begin = _begins(steps[0], n_rows)
    degree = begin.diff()
    many = degree > fanout
    row = torch.arange(n_rows, device=degree.device).repeat_interleave(degree.clamp(max=fanout))
    position = torch.arange(len(row), device=degree.device) - _begins(row, n_rows)[row]
    picks = distinct_below(degree[many], fanout, key[many], counter[many])
    position[many[row]] = picks.flatten()
    return row, steps[1][begin[row] + position]


def _product(a: _Ones, b: _Ones) -> tuple[Tensor, Tensor]:
    """Returns rows and columns of the nonzeros of A B, by row, then column."""
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


def _one_each(column: Tensor, n_columns: int) -> _Ones:
    """Makes Q, with a row of one nonzero for each column given."""
    rows = torch.arange(len(column), device=column.device)
    return _Ones(rows, column, (len(column), n_columns))


def _cells(matrix: _Ones) -> Tensor:
    """Numbers the places of the ones, in order."""
    return matrix.row * matrix.shape[1] + matrix.column


def _places(cells: Tensor, n_columns: int) -> tuple[Tensor, Tensor]:
    """Returns the rows and columns of numbered places."""
    row = cells // n_columns
    return row, cells - row * n_columns


def _begins(row: Tensor, n_rows: int) -> Tensor:
    """Returns where each of `n_rows` rows begins among ascending `row`, and where the last ends."""
    return torch.searchsorted(row, torch.arange(n_rows + 1, device=row.device))
