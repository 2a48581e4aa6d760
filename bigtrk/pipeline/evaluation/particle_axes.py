"""The quantities of a particle against which its losses are shown.

Shapes: P particles of the event, C of them that are to be found.
"""

import math

import numpy as np
from scipy.spatial import cKDTree

from bigtrk.events.event import Event
from bigtrk.events.truth import particle_kinematics
from bigtrk.tracks.bins import ETA_EDGES, HITS_EDGES, PT_EDGES, VERTEX_EDGES, Axes, Floats
from bigtrk.tracks.matching import Ids

FULL_TURN = 2 * math.pi
DISTANCE_EDGES = tuple(round(10 ** (step / 3), 4) for step in range(-9, 4))


def particle_axes(event: Event, particle: Ids, min_hits: int) -> Axes:
    """Returns the values [C] and the limits of the bins of each quantity of particles, given as
    rows of `particle_kinematics` [C].

    pt (GeV), eta, hits. distance: in eta and phi to the nearest other particle of at least
    `min_hits` hits, infinite without one. vertex: distance of the production vertex from the beam
    line (mm), at least the first limit. A value that the truth does not give is NaN.
    """
    table = {name: column.astype(np.float64) for name, column in particle_kinematics(event).items()}
    is_long = np.flatnonzero(table["nhits"] >= min_hits)
    distance = np.full(len(table["nhits"]), np.nan)
    distance[is_long] = nearest_distances(table["eta"][is_long], table["phi"][is_long])
    from_beam = np.maximum(np.hypot(table["vx"], table["vy"]), VERTEX_EDGES[0])
    columns = {
        "pt": (table["pt"], PT_EDGES),
        "eta": (table["eta"], ETA_EDGES),
        "distance": (distance, DISTANCE_EDGES),
        "vertex": (from_beam, VERTEX_EDGES),
        "hits": (table["nhits"], HITS_EDGES),
    }
    return {axis: (values[particle], edges) for axis, (values, edges) in columns.items()}


def nearest_distances(eta: Floats, phi: Floats) -> Floats:
    """Returns each particle's distance to the nearest other in eta and phi (rad): [P] -> [P].

    NaN where the particle's direction is not known, infinite where no other's is.
    """
    distance = np.full(len(eta), np.nan)
    known = np.flatnonzero(np.isfinite(eta) & np.isfinite(phi))
    if not len(known):
        return distance
    turn = phi[known] % FULL_TURN
    # The remainder of a tiny negative angle is rounded to the full turn.
    places = np.stack([eta[known], np.where(turn < FULL_TURN, turn, 0.0)], axis=1)
    tree = cKDTree(places, boxsize=(0.0, FULL_TURN))  # 0: that axis has no period
    nearest, _ = tree.query(places, k=2)
    distance[known] = nearest[:, 1]
    return distance
