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


def score_if_weighted(
    track_id: Ids, particle_id: Ids, weight: NDArray[np.floating] | None
) -> float | None:
    """Returns `trackml_score`; None without weights, where one is unknown (as in files of the test
    set), or where all are 0 (an event of short particles alone).
    """
    if weight is None or not weight.any() or not np.isfinite(weight).all():
        return None
    return trackml_score(track_id, particle_id, weight)
