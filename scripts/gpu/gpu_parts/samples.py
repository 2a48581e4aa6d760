"""ShaDow sampling on the device, compared with a CPU."""

import time
from functools import partial

import numpy as np
import torch

from bigtrk.sampling.engines import Products, fastest
from bigtrk.sampling.subgraphs import Walk, epoch_key, in_edges
from scripts.gpu.gpu_parts.extent import CTD, Extent, Row


def sampling(extent: Extent) -> Row:
    """Samples ShaDow mini-batches by products on the device, which are the CPU's bit for bit."""
    edges = extent.graph(CTD)
    graph = in_edges(edges.edge_index, edges.n_nodes)
    n_roots = 10 if extent.dry else 2048
    roots = np.random.default_rng(0).permutation(edges.n_nodes)[:n_roots]
    of_cpu, key = fastest(torch.device("cpu")), epoch_key(0, 0)
    on_device = Products(extent.device)
    start = time.perf_counter()
    expected = of_cpu(graph, roots, Walk(), key)
    took = time.perf_counter() - start
    found = on_device(graph, roots, Walk(), key)
    same = all(
        np.array_equal(getattr(found, name), getattr(expected, name)) for name in found._fields
    )
    return {
        "roots": n_roots,
        "edges": len(expected.edge),
        "same": same,
        "device_seconds": extent.seconds(partial(on_device, graph, roots, Walk(), key)),
        "cpu_seconds": took,
    }
