"""Nearest neighbours among embedded hits.

Shapes: N points, D dimensions, Q queries, K neighbours.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

_BLOCK = 2**26  # distances that an accelerator holds at once: 256 MiB


def nearest(points: Tensor, queries: Tensor, k: int, radius: float) -> Tensor:
    """Finds the at most `k` points nearest to each of `queries` [Q] (rows of `points` [N, D]) that
    are less than `radius` away, itself left out: pairs [2, P] of a query and a neighbour.
    """
    found = _on_device if points.is_cuda else _in_tree
    near = found(points, queries, min(k + 1, len(points)), radius)
    pairs = torch.stack([queries.repeat_interleave(near.shape[1]), near.reshape(-1)])
    return pairs[:, (pairs[1] != len(points)) & (pairs[0] != pairs[1])]


def search_tree(points: NDArray[np.floating]) -> "cKDTree":
    """Returns a tree of points [N, D] in which neighbours are found."""
    # Imported here, as that takes 0.35 s, and most trainings embed nothing.
    from scipy.spatial import cKDTree

    return cKDTree(points)


def _in_tree(points: Tensor, queries: Tensor, k: int, radius: float) -> Tensor:
    """Returns neighbours [Q, k], N where there are fewer."""
    places = points.float().numpy()
    _, near = search_tree(places).query(
        places[queries.numpy()], k=list(range(1, k + 1)), distance_upper_bound=radius
    )
    return torch.from_numpy(near.astype(np.int64))


def _on_device(points: Tensor, queries: Tensor, k: int, radius: float) -> Tensor:
    """Returns neighbours [Q, k], N where there are fewer; by blocks of queries."""
    blocks = []
    for block in queries.split(max(1, _BLOCK // len(points))):
        distance, near = torch.cdist(points[block], points).topk(k, largest=False)
        blocks.append(torch.where(distance < radius, near, len(points)))
    return torch.cat(blocks)
