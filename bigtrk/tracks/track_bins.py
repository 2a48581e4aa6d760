"""Efficiency, duplicates and fakes of an event's tracks in bins.

Shapes: N hits, T tracks.
"""

import numpy as np

from bigtrk.graphs.event_graph import ParticleTable
from bigtrk.tracks.bins import ETA_EDGES, Bins, Floats, axes_of, binned_ratio
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.matching import Judgement
from bigtrk.tracks.overlaps import Ids


def track_bins(
    judgement: Judgement, particles: ParticleTable, track_id: Ids, hit_eta: Floats
) -> Bins:
    """Bins one event's particles and tracks by what became of them: track_id [N], hit_eta [N].

    efficiency_by_pt and so on, by `axes_of`: reconstructed among reconstructable particles.
    duplicates_by_pt and so on: those with more than one track among the reconstructed.
    fakes_by_eta: tracks that match no particle, by the mean eta of their hits.
    """
    found = judgement.reconstructed
    twice = judgement.n_tracks[found] > 1
    track_eta = _mean_eta(judgement.track_id, track_id, hit_eta)
    bins = {"fakes_by_eta": binned_ratio(track_eta, ~judgement.matched, ETA_EDGES)}
    for name, (column, edges) in axes_of(particles).items():
        values = column[judgement.particle]
        bins[f"efficiency_by_{name}"] = binned_ratio(values, found, edges)
        bins[f"duplicates_by_{name}"] = binned_ratio(values[found], twice, edges)
    return bins


def _mean_eta(tracks: Ids, track_id: Ids, hit_eta: Floats) -> Floats:
    """Averages eta over the hits of each of `tracks` [T]: [T]."""
    used = track_id != NO_TRACK
    total = np.bincount(track_id[used], weights=hit_eta[used])
    mean: Floats = total[tracks] / np.bincount(track_id[used])[tracks]
    return mean
