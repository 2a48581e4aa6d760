"""Proves that a model gives in a sector what it gives in the whole graph, in float64.

Shapes: N nodes, E edges, H the width of an exchange.
"""

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bigtrk.errors import InputError
from bigtrk.models.check import own_random_numbers, random_sector
from bigtrk.models.options import Kind
from bigtrk.models.protocol import SectorInputs

_TOLERANCE = 1e-9  # of the largest value; rounding gives 1e-15, a wrong row 1e-2 and more


class _Part(NamedTuple):
    """A sector of a graph: the rows that its nodes, owned ones first, and its edges have there."""

    inputs: SectorInputs
    nodes: Tensor
    edges: Tensor


def check_cut(
    model: nn.Module, n_node_features: int, n_edge_features: int, kind: Kind = "edge"
) -> float:
    """Runs a float64 copy of `model` on a random graph and on both sectors of a cut of it, whose
    halo rows are those of the whole. Gives the largest difference, relative to the largest value:
    about 1e-15, unless the model computes in bfloat16.

    Raises:
        InputError: a sector's result, or what it gives the exchange, is not that of the whole: a
            layer reads of a halo node what its sector does not know, or of all nodes at once.
    """
    model = deepcopy(model).double()
    like = next(model.parameters())
    whole = random_sector(n_node_features, n_edge_features, 12, like)
    rows: list[Tensor] = []

    def record(owned: Tensor) -> Tensor:
        rows.append(owned.clone())
        return owned

    with own_random_numbers(like), torch.no_grad():
        made = model(*whole, record)
        parts = [_difference(model, _part(whole, k), rows, made, kind) for k in range(2)]
    worst = float(torch.stack(parts).max())
    if not worst <= _TOLERANCE:
        raise InputError(
            f"model {type(model).__name__}: differs by {worst:.1e} between a sector and the whole "
            f"graph; sum over the edges of owned nodes alone, average over no rows, and drop none "
            f"at random (see bigtrk/models/protocol.py)"
        )
    return worst


def _part(whole: SectorInputs, k: int) -> _Part:
    """Takes every other node, all edges that touch them, and the halo at the other ends."""
    owns = torch.arange(len(whole.x), device=whole.x.device) % 2 == k
    touches = owns[whole.edge_index].any(0)
    is_end = torch.zeros_like(owns)
    is_end[whole.edge_index[:, touches].flatten()] = True
    nodes = torch.cat([owns.nonzero()[:, 0], (is_end & ~owns).nonzero()[:, 0]])
    row = torch.empty_like(owns, dtype=torch.int64)
    row[nodes] = torch.arange(len(nodes), device=nodes.device)
    edge_index = row[whole.edge_index[:, touches]]
    tensors = whole.x[nodes], whole.edge_features[touches], edge_index
    return _Part(SectorInputs(*tensors, n_owned=int(owns.sum())), nodes, touches)


def _difference(
    model: nn.Module, part: _Part, whole: list[Tensor], made: Tensor, kind: Kind
) -> Tensor:
    """Measures how far results and exchanged rows of a part are from the whole graph's, relatively.

    `whole`: all rows [N, H] of each exchange. `made`: the whole graph's result.
    """
    n_owned, rows, found = part.inputs.n_owned, iter(whole), []

    def exchange(owned: Tensor) -> Tensor:
        expected = next(rows)[part.nodes]
        found.append(_relative(owned, expected[:n_owned]))
        return torch.cat([owned, expected[n_owned:]])

    result = model(*part.inputs, exchange)
    if kind == "edge":
        found.append(_relative(result, made[part.edges]))
    else:
        found.append(_relative(result[:n_owned], made[part.nodes[:n_owned]]))
    return torch.stack(found).max()


def _relative(found: Tensor, expected: Tensor) -> Tensor:
    return (found - expected).abs().max() / expected.abs().max().clamp_min(1e-30)
