"""Sampling and searching on the device, compared with a CPU."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from bigtrk.sampling.engines import Products, fastest
from bigtrk.sampling.subgraphs import Walk, epoch_key, in_edges
from scripts.gpu.gpu_parts.extent import CTD, EVENT_1000, Extent, Row

DIMENSIONS, NEIGHBOURS = 8, 30  # of an embedding; near each point, about
_T = TypeVar("_T")
ROWS = 2048  # of which all distances are computed at once


def sampling(extent: Extent) -> Row:
    """Samples ShaDow mini-batches by products on the device, which are the CPU's bit for bit."""
    edges = extent.graph(CTD)
    graph = in_edges(edges.edge_index, edges.n_nodes)
    n_roots = 10 if extent.dry else 2048
    roots = np.random.default_rng(0).permutation(edges.n_nodes)[:n_roots]
    of_cpu, key = fastest(torch.device("cpu")), epoch_key(0, 0)
    on_device = Products(extent.device)
    took, expected = on_cpu(partial(of_cpu, graph, roots, Walk(), key))
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


def radius(extent: Extent) -> Row:
    """Finds the pairs of points within a radius by all distances, and by a k-d tree on the CPU."""
    n_points = 200 if extent.dry else extent.graph(EVENT_1000).n_nodes
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(n_points, DIMENSIONS, generator=generator)
    tree = cKDTree(points.numpy())
    near = tree.query(points[:100].numpy(), min(NEIGHBOURS, n_points))[0][:, -1]
    within = float(np.median(near))
    took, expected = on_cpu(partial(tree.query_pairs, within, output_type="ndarray"))
    placed = points.to(extent.device)
    found = pairs_within(placed, within).cpu().numpy()
    keys = [pairs[:, 0] * n_points + pairs[:, 1] for pairs in (found, expected)]
    # Distances in float32 may lie on either side of the radius.
    differing = len(np.setxor1d(*keys))
    return {
        "points": n_points,
        "pairs": len(expected),
        "differing_pairs": differing,
        "same": differing <= 1e-4 * max(len(expected), 1),
        "device_seconds": extent.seconds(partial(pairs_within, placed, within)),
        "cpu_seconds": took,
    }


def pairs_within(points: Tensor, radius: float) -> Tensor:
    """Returns pairs of rows [P, 2] nearer than `radius`, the lower row first."""
    found = []
    for start in range(0, len(points), ROWS):
        part = points[start : start + ROWS]
        # By differences: products would lose digits of small distances.
        distances = torch.cdist(part, points, compute_mode="donot_use_mm_for_euclid_dist")
        rows = (distances <= radius).nonzero()
        rows[:, 0] += start
        found.append(rows[rows[:, 0] < rows[:, 1]])
    return torch.cat(found)


def on_cpu(call: Callable[[], _T]) -> tuple[float, _T]:
    """Returns the seconds of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result
