"""ShaDow by a compiled sampler (shadow.c), on the threads that torch may use."""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bigtrk.native_code import NATIVE, compiled, pointers
from bigtrk.sampling.subgraphs import InEdges, Rows, first_rows
from bigtrk.sampling.walk import Bulk, Walk

CODE = "sampling", Path(__file__).with_name("shadow.c"), (), (NATIVE,)


@cache
def library() -> ctypes.CDLL | None:
    """Loads the compiled sampler; None where it cannot be compiled or loaded."""
    found = compiled(*CODE)
    if found is not None:
        found.shadow_sample.restype = ctypes.c_void_p
        found.shadow_collect.restype = found.take_rows.restype = None
    return found


def sample(graph: InEdges, roots: Rows, walk: Walk, key: int) -> Bulk:
    """Samples with the compiled engine (walk.Sampler).

    Raises:
        MemoryError: the walks do not fit into memory.
    """
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


def take_rows(table: Tensor, row: Tensor) -> Tensor:
    """Returns table[row]: [M, ...], [L] int64 -> [L, ...].

    On event 1000 with two threads the features of a mini-batch's edges take 0.6 ms instead of the
    1.1 to 1.9 ms of index_select, which does not fetch ahead and was most of sampling.
    """
    usable = table.device.type == "cpu" and table.is_contiguous()
    if not usable or (found := library()) is None:
        return table.index_select(0, row)
    made = table.new_empty((len(row), *table.shape[1:]))
    found.take_rows(
        ctypes.c_void_p(table.data_ptr()),
        ctypes.c_long(table[:1].numel() * table.element_size()),
        ctypes.c_void_p(row.data_ptr()),
        ctypes.c_long(len(row)),
        ctypes.c_void_p(made.data_ptr()),
        ctypes.c_int(torch.get_num_threads()),
    )
    return made
