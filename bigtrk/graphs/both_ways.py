"""Edges that are there in both directions, which metrics count once.

Shapes: N nodes, E edges.
"""

import numpy as np
import torch
from torch import Tensor

from bigtrk.graphs.features import AT_A_TIME


def second_ways(edge_index: Tensor, node_id: Tensor, y: Tensor) -> Tensor:
    """Marks the edges to a lower node whose reverse is there with the same label: [E] bool.

    edge_index [2, E]: rows of node_id. node_id [N] int64: numbers in the event, so that sectors
    agree. y [E] bool: labels.
    """
    source, destination = node_id[edge_index.long()]
    second: Tensor = source > destination
    rows = second.nonzero().squeeze(1)
    if not len(rows):
        return second
    width = int(node_id.max()) + 1
    there = np.sort(((destination * width + source) * 2 + y)[~second].numpy())
    for some in rows.split(AT_A_TIME):  # all at once would take three times the bytes of `there`
        wanted = ((source[some] * width + destination[some]) * 2 + y[some]).numpy()
        place = np.searchsorted(there, wanted).clip(max=max(len(there) - 1, 0))
        second[some] = torch.from_numpy(there[place] == wanted) if len(there) else False
    return second
