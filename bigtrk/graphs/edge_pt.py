"""The pT of each true edge's particle, derived when a graph is loaded."""

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import ParticleTable


def edge_log_pt(
    y: Tensor, edge_index: Tensor, particle_id: Tensor | None, particles: ParticleTable | None
) -> Tensor:
    """Returns the log of `edge_pt`: the auxiliary target, [E] float32.

    The log is of order one, and its error is relative in pT, so that the few stiff particles do not
    outweigh the others.
    """
    return edge_pt(y, edge_index, particle_id, particles).log()


def edge_pt(
    y: Tensor, edge_index: Tensor, particle_id: Tensor | None, particles: ParticleTable | None
) -> Tensor:
    """Returns pT in GeV: [E] float32, NaN for false edges and where it is not known.

    y [E] bool, edge_index [2, E], particle_id [N].
    """
    found = torch.full(y.shape, torch.nan)
    if particle_id is None or particles is None:
        return found
    row = particles.rows_of(particle_id[edge_index[1, y]])
    # The index -1 (not in the table) selects a spare last row.
    pt = torch.cat([particles.pt, particles.pt.new_tensor([torch.nan])])[row]
    found[y] = torch.where((pt > 0) & pt.isfinite(), pt, torch.nan)
    return found
