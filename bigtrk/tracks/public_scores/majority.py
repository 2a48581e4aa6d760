"""The particle that made most of a track.

Shapes: N hits.
"""

import numpy as np

from bigtrk.events.event import NOISE
from bigtrk.tracks.overlaps import Ids, overlaps


def majority_particles(track_id: Ids, particle_id: Ids) -> Ids:
    """Returns of each hit the particle that made more than half of its track's hits, NOISE where
    there is none or the hit is in no track: track_id, particle_id [N] -> [N].
    """
    rows = overlaps(track_id, particle_id)
    most = (2 * rows.shared > rows.track_hits) & (rows.particle_id != NOISE)
    tracks, particles = rows.track_id[most], rows.particle_id[most]
    named = np.full(len(track_id), NOISE, np.int64)
    hits = np.isin(track_id, tracks)
    named[hits] = particles[np.searchsorted(tracks, track_id[hits])]
    return named
