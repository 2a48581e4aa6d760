"""The score of the TrackML challenge."""

import numpy as np
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.events.event import NOISE
from bigtrk.tracks.overlaps import Ids, overlaps


def trackml_score(track_id: Ids, particle_id: Ids, weight: NDArray[np.floating]) -> float:
    """Returns the weight of well-found hits over that of all hits of an event, in [0, 1].

    track_id [N] (-1: in no track), particle_id [N] (0: noise), weight [N]: all hits of the event,
    also those that track building never saw. A hit is well found if its particle made more than
    half of its track and has more than half of its hits there.

    Raises:
        InputError: weights are unknown (NaN) or sum to 0.
    """
    if not np.isfinite(weight).all():
        raise InputError("hit weights are unknown, so there is no TrackML score; give the truth's")
    total = weight.sum(dtype=np.float64)
    if total <= 0:
        raise InputError("hit weights sum to 0, so there is no TrackML score; give the truth's")
    rows = overlaps(track_id, particle_id)
    well_found = (
        (2 * rows.shared > rows.track_hits)
        & (2 * rows.shared > rows.particle_hits)
        & (rows.particle_id != NOISE)
    )
    counted = rows.hits[well_found[rows.row_of_hit]]
    return float(weight[counted].sum(dtype=np.float64) / total)


def aligned_submission(
    hit_id: Ids, submitted_hit_id: Ids, submitted_track_id: Ids, source: str
) -> Ids:
    """Returns a submission's track of each hit, in the event's order: [N], [M], [M] -> [N].

    `source` names the submission in messages.

    Raises:
        InputError: a hit is submitted twice, is missing or unknown, or has track id -1 (which the
            challenge's own scorer drops without a word).
    """
    ids, first, counts = np.unique(submitted_hit_id, return_index=True, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"{source}: hit {ids[counts > 1][0]} occurs twice; keep one row per hit")
    if len(unknown := np.setdiff1d(ids, hit_id)):
        raise InputError(f"{source}: hit {unknown[0]} is not in the event; remove its row")
    if len(missing := np.setdiff1d(hit_id, ids)):
        raise InputError(
            f"{source}: hit {missing[0]} is missing ({len(missing)} in all); give each hit in no "
            f"track a track id of its own"
        )
    if len(dropped := np.flatnonzero(submitted_track_id < 0)):
        row = dropped[0]
        raise InputError(
            f"{source}: row {row + 1}: track id {submitted_track_id[row]}; give each hit in no "
            f"track a track id of its own"
        )
    return submitted_track_id[first[np.searchsorted(ids, hit_id)]]
