"""The result and the gradients of a model on a graph, whole or in sectors, and how far two differ.

Shapes: N nodes, E edges, C numbers of a result's row.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bigtrk.graphs.sector import Sector
from bigtrk.models.options import Kind
from bigtrk.models.protocol import SectorInputs
from bigtrk.proof.lockstep import SectorError, run_sectors, told_sector
from bigtrk.user_code import no_exit

_TINY = 1e-300
# A gradient is compared with at least this share of the largest one: of one that is zero but for
# rounding (a bias before a softmax) nothing else could be told.
_LEAST_SHARE = 1e-3


class Outcome(NamedTuple):
    """rows: what the model gives, [E] or [E, 2], of a hit model [N, D], in the graph's order;
    gradients: of each parameter, of a sum of these with fixed random weights.
    """

    rows: Tensor
    gradients: dict[str, Tensor]


def inputs_of(sector: Sector) -> SectorInputs:
    """Gives a sector as models read it, in tensors that the model may change."""
    x, edge_features = sector.node_features.clone(), sector.edge_features.clone()
    return SectorInputs(x, edge_features, sector.edge_index.clone(), sector.n_owned)


def replica(model: nn.Module) -> nn.Module:
    """Copies a model but for its weights: what it keeps of a pass stays with its sector, as on
    ranks.
    """
    return deepcopy(model, {id(weight): weight for weight in model.parameters()})


def outcome(model: nn.Module, sectors: Sequence[Sector], kind: Kind) -> Outcome:
    """Runs `model` on the sectors of one graph, forward and backward.

    Raises:
        SectorError: as `run_sectors`; a result has not a row for each edge or node; the backward
            pass fails, or calls the exchange.
    """
    passes = [partial(replica(model), *inputs_of(sector)) for sector in sectors]
    made = run_sectors(passes, sectors)
    pairs = [_counted(rows, sector, kind) for rows, sector in zip(made, sectors, strict=True)]
    ids, counted = zip(*pairs, strict=True)
    rows = torch.cat(counted)[torch.cat(ids).argsort()]
    return Outcome(rows.detach(), _gradients(model, rows))


def _gradients(model: nn.Module, rows: Tensor) -> dict[str, Tensor]:
    """Gives the gradient of each parameter; zero where it has none, as models/check.py tells."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    gradients = {name: torch.zeros_like(value) for name, value in named.items()}
    if not rows.requires_grad:
        return gradients
    loss = (rows * weights).sum()
    try:
        with no_exit():
            found = torch.autograd.grad(loss, [*named.values()], allow_unused=True)
    except SectorError:
        raise
    except Exception as error:
        raise SectorError("fails in its backward pass") from error
    return gradients | {k: got for k, got in zip(named, found, strict=True) if got is not None}


def _counted(made: Tensor, sector: Sector, kind: Kind) -> tuple[Tensor, Tensor]:
    """Gives the rows that count in this sector, and their ids in the graph."""
    if not isinstance(made, Tensor):
        raise SectorError(
            f"gives a {type(made).__name__} for {told_sector(sector)}; return a tensor"
        )
    if made.dim() == 0 or len(made) != (sector.n_edges if kind == "edge" else sector.n_nodes):
        raise SectorError(f"gives a result of shape {list(made.shape)} for {told_sector(sector)}")
    if kind == "edge":
        return sector.edge_id[sector.owns_edge], made[sector.owns_edge]
    return sector.node_id[: sector.n_owned], made[: sector.n_owned]


class Difference(NamedTuple):
    """The largest differences of two outcomes, each relative to the largest value: of the rows, and
    of the gradient of each parameter.
    """

    rows: float
    of_each: dict[str, float]

    @property
    def gradients(self) -> float:
        return max(self.of_each.values(), default=0.0)


def compare(found: Outcome, expected: Outcome) -> Difference:
    """Measures how far an outcome is from the expected one; infinite where one is not finite."""
    largest = max((float(g.abs().max()) for g in expected.gradients.values()), default=0.0)
    least = max(_LEAST_SHARE * largest, _TINY)
    of_each = {
        name: relative(found.gradients[name], gradient, least)
        for name, gradient in expected.gradients.items()
    }
    return Difference(relative(found.rows, expected.rows), of_each)


def relative(found: Tensor, expected: Tensor, least: float = _TINY) -> float:
    """Measures the largest difference, relative to the largest value expected, or to `least`."""
    if found.numel() == 0:
        return 0.0
    same = (found == expected) | (found.isnan() & expected.isnan())
    apart = torch.where(same, 0.0, (found - expected).abs()).nan_to_num(nan=torch.inf)
    scale = expected[expected.isfinite()].abs().max() if expected.isfinite().any() else apart.max()
    return float(apart.max() / scale.clamp_min(least))
