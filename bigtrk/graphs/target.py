"""The true edges that a training is to find, their weights and pT, derived on loading a graph."""

import torch
from pydantic import Field
from torch import Tensor

from bigtrk.config import Settings
from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import ParticleTable


class Target(Settings):
    """The true edges that a training is to find, by default all. Metrics tell target edges from
    others, whatever their weights.
    """

    pt_min: float = Field(0.0, ge=0)
    """Smallest pT of a target's particle. One whose pT is unknown satisfies none above 0 [GeV]."""
    hits_min: int = Field(0, ge=0, lt=2**31)
    """Fewest hits of a target's particle [hits]."""
    eta_max: float | None = Field(None, gt=0)
    """Largest |eta| of a target's particle; any without it."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Weight of a target edge in the loss, where a false edge has 1."""
    other_weight: float = Field(0.0, allow_inf_nan=False)
    """Weight of the other true edges; 0 leaves them out, and with a negative one they are trained
    as false."""

    @property
    def takes_all(self) -> bool:
        """Says whether every true edge is a target, so that no particle need be known."""
        return self.pt_min == 0 and self.hits_min == 0 and self.eta_max is None


def edge_weights(y: Tensor, is_target: Tensor, target: Target) -> Tensor:
    """Returns the weight of each edge in the loss: y, is_target [E] bool -> [E] float32."""
    of_true = torch.where(is_target, target.weight, target.other_weight)
    return torch.where(y, of_true, 1.0)


def target_edges(
    y: Tensor,
    edge_index: Tensor,
    particle_id: Tensor | None,
    particles: ParticleTable | None,
    target: Target,
) -> Tensor:
    """Marks the edges that are true and belong to a particle in the target: y [E] bool, edge_index
    [2, E], particle_id [N] -> [E] bool; InputError if the graph does not know the particles that
    the target asks for.
    """
    if target.takes_all or y.numel() == 0:
        return y
    if particle_id is None or particles is None:
        raise InputError(
            "the graph has no particle ids or no particle table, so its edges cannot be selected "
            "by target; set target.pt_min=0 target.hits_min=0 (and no target.eta_max) to train on "
            "all true edges"
        )
    wanted = particles.nhits >= target.hits_min
    if target.pt_min > 0:
        wanted &= particles.pt >= target.pt_min
    if target.eta_max is not None:
        wanted &= particles.eta.abs() <= target.eta_max
    row = particles.rows_of(particle_id[edge_index[1, y]])
    chosen = y.clone()
    # The index -1 (not in the table) selects a spare last row, never a target.
    chosen[y] = torch.cat([wanted, torch.tensor([False])])[row]
    return chosen


def edge_log_pt(
    y: Tensor, edge_index: Tensor, particle_id: Tensor | None, particles: ParticleTable | None
) -> Tensor:
    """Returns the log of `edge_pt`: the auxiliary target, [E] float32, whose error is relative."""
    return edge_pt(y, edge_index, particle_id, particles).log()


def edge_pt(
    y: Tensor, edge_index: Tensor, particle_id: Tensor | None, particles: ParticleTable | None
) -> Tensor:
    """Returns pT in GeV: [E] float32, NaN for false edges and where it is not known."""
    found = torch.full(y.shape, torch.nan)
    if particle_id is None or particles is None:
        return found
    row = particles.rows_of(particle_id[edge_index[1, y]])
    # The index -1 (not in the table) selects a spare last row.
    pt = torch.cat([particles.pt, particles.pt.new_tensor([torch.nan])])[row]
    found[y] = torch.where((pt > 0) & pt.isfinite(), pt, torch.nan)
    return found
