"""ACTS's tensors as a trained model reads them, in operations that ONNX and TorchScript know.

TorchScript compiles these modules: what they compute with is in their attributes.

Shapes: N nodes, E edges, F columns of x (R, phi, Z and eta first, each over its scale).
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bigtrk.formats.acts.columns import EDGE_SCALES, NodeColumns
from bigtrk.graphs.features import FROM_PHI, SCALES


class NodeFeatures(nn.Module):
    """Makes the node features that a model reads, of order one, from x: [N, F] -> [N, chosen]."""

    column: Tensor
    factor: Tensor
    shift: Tensor

    def __init__(self, columns: NodeColumns, chosen: Sequence[str]) -> None:
        super().__init__()
        names = [*columns.names, *FROM_PHI]  # as `forward` joins them
        factors = [_factor(name, columns.scales) for name in chosen]
        shifts = [columns.shifts.get(name, 0.0) for name in chosen]
        self.turns = any(name in FROM_PHI for name in chosen)
        self.register_buffer("column", torch.tensor([names.index(name) for name in chosen]))
        self.register_buffer("factor", torch.tensor(factors))
        self.register_buffer("shift", torch.tensor(shifts))

    def forward(self, x: Tensor) -> Tensor:
        if self.turns:
            phi = x[:, 1:2] * math.pi
            x = torch.cat([x, torch.cos(phi), torch.sin(phi)], dim=1)
        return x.index_select(1, self.column) * self.factor - self.shift


class EdgeFeatures(nn.Module):
    """Makes the edge features that a model reads, of order one, from ACTS's: [E, 6] -> [E, G]."""

    column: Tensor
    factor: Tensor

    def __init__(self, chosen: Sequence[str]) -> None:
        super().__init__()
        names = list(EDGE_SCALES)
        factors = [_factor(name, EDGE_SCALES) for name in chosen]
        self.register_buffer("column", torch.tensor([names.index(name) for name in chosen]))
        self.register_buffer("factor", torch.tensor(factors))

    def forward(self, edge_attr: Tensor) -> Tensor:
        return edge_attr.index_select(1, self.column) * self.factor


def _factor(name: str, scales: Mapping[str, float]) -> float:
    """Returns what makes a column over ACTS's scale one over ours; 1 where both are the same."""
    ours = SCALES.get(name, scales.get(name, 1.0))
    return scales.get(name, 1.0) / ours


def outwards(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the ends of edges [2, E], source and destination [E], ordered as in our radius
    graphs: by distance from the origin, then by row.

    ACTS's metric learning orders them by row alone. Squares are float64, so that they tell apart
    what float32 does.
    """
    r, z = x[:, 0].double(), x[:, 2].double()  # over the same scale
    distance = r * r + z * z
    one, other = edge_index[0], edge_index[1]
    of_one, of_other = distance.index_select(0, one), distance.index_select(0, other)
    turned = (of_one > of_other) | ((of_one == of_other) & (one > other))
    return torch.where(turned, other, one), torch.where(turned, one, other)


def edge_attributes(x: Tensor, source: Tensor, destination: Tensor) -> Tensor:
    """Computes what ACTS calls edge_attr from the scaled columns of x: [E, 6].

    dr, dphi, dz, deta, phislope = dphi / dr and rphislope = mean r x phislope, the last two 0 where
    dr is 0 (makeEdgeFeatures in ACTS's ModuleMapUtils.cuh). A turn of phi is 2 in its units. They
    are computed in float64: a difference that is wrapped keeps only the last digits.
    """
    near = x[:, :4].double().index_select(0, source)
    far = x[:, :4].double().index_select(0, destination)
    dr, dphi, dz, deta = (far - near).unbind(1)
    dphi = torch.where(dphi > 1.0, dphi - 2.0, torch.where(dphi < -1.0, dphi + 2.0, dphi))
    # ACTS clamps where we do, PHISLOPE_LIMIT in its units.
    slope = torch.where(dr != 0.0, (dphi / dr).clamp(-100.0, 100.0), torch.zeros_like(dr))
    rphislope = 0.5 * (near[:, 0] + far[:, 0]) * slope
    return torch.stack([dr, dphi, dz, deta, slope, rphislope], dim=1).float()
