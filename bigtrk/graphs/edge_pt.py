"""The auxiliary target: the pT of each true edge's particle, derived when a graph is loaded."""

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import ParticleTable


def edge_log_pt(
    y: Tensor, edge_index: Tensor, particle_id: Tensor | None, particles: ParticleTable | None
) -> Tensor:
    """Log of pT in GeV: [E] float32, NaN for false edges and where the pT is not known.

    y [E] bool, edge_index [2, E], particle_id [N]. An order of one, and an error of it is relative
    in pT, so that the few stiff particles do not outweigh the others.
    """
    log_pt = torch.full(y.shape, torch.nan)
    if particle_id is None or particles is None:
        return log_pt
    row = particles.rows_of(particle_id[edge_index[1, y]])
    # A spare last row is what -1 (not in the table) selects.
    pt = torch.cat([particles.pt, particles.pt.new_tensor([torch.nan])])[row]
    log_pt[y] = torch.where((pt > 0) & pt.isfinite(), pt, torch.nan).log()
    return log_pt
