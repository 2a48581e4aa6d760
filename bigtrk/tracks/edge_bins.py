"""Edge efficiency and purity of a whole event in bins.

Shapes: N hits, E edges.
"""

import numpy as np
import torch
from torch import Tensor

from bigtrk.graphs.sector import Sector
from bigtrk.tracks.bins import ETA_EDGES, PT_EDGES, Bins, Floats, binned_ratio
from bigtrk.tracks.hit_columns import hit_eta
from bigtrk.tracks.overlaps import Ids


def edge_bins(event: Sector, scores: Tensor, weights: Tensor, edge_cut: float) -> Bins:
    """Bins efficiency and purity, as in `EdgeMetrics`, of a whole event with truth: scores [E],
    weights [E] of the target.

    efficiency_by_pt, efficiency_by_eta: by a target edge's particle; absent where particles are
    unknown. purity_by_eta: by the mean of an edge's two hits; absent where theirs is unknown.
    """
    assert event.y is not None
    true = event.y.numpy()
    target = true & (weights.numpy() > 0)
    predicted = scores.numpy() > edge_cut
    counted = predicted & (target | ~true)
    bins: Bins = {}
    of_hits = hit_eta(event)
    if of_hits is not None:
        mean = of_hits[event.edge_index.numpy()[:, counted]].mean(axis=0)
        bins["purity_by_eta"] = binned_ratio(mean, target[counted], ETA_EDGES)
    if event.particle_id is not None and event.particles is not None:
        ends = event.edge_index[1][torch.from_numpy(target)]
        row = event.particles.rows_of(event.particle_id[ends]).numpy()
        found = predicted[target]
        pt, eta = (_at(row, column) for column in (event.particles.pt, event.particles.eta))
        bins["efficiency_by_pt"] = binned_ratio(pt, found, PT_EDGES)
        bins["efficiency_by_eta"] = binned_ratio(eta, found, ETA_EDGES)
    return bins


def _at(row: Ids, column: Tensor) -> Floats:
    """Returns `column` in these rows; NaN in row -1, that of particles that the table lacks."""
    values: Floats = np.append(column.double().numpy(), np.nan)
    return values[row]
