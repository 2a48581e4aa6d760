"""The names that acorn gives the columns of a graph, and the units that its readers leave pT in.

Its newer scheme (`variable_with_prefix: true`) says of each column what it is of: hit_x [N], edge_y
[E], track_particle_pt [T], T being the true edges. Its older one does not: x, y, pt.
"""

from collections.abc import Iterable

from bigtrk.formats.registry import PtUnit

HITS, EDGES, TRUE_EDGES = "hit_", "edge_", "track_"  # how names begin in the newer scheme
SCORES = "edge_scores"
TRUE_MAP = "track_to_edge_map"
PARTICLE = "track_particle_id"
TRUE_EDGES_OF = "track_edges"
VERTEX = tuple(f"track_particle_{axis}" for axis in ("vx", "vy", "vz"))

_HIT_COLUMNS = (
    *("x", "z", "r", "phi", "eta", "region", "volume_id", "layer_id", "module_id", "module_index"),
    *(f"cluster_{column}_{side}" for column in ("r", "phi", "z", "eta") for side in (1, 2)),
    *("weight", "cell_count", "cell_val", "leta", "lphi", "lx", "ly", "lz", "geta", "gphi"),
)
EDGE_COLUMNS = ("dr", "dphi", "dz", "deta", "phislope", "rphislope")
# The newer name of each older one; hit_y has none, as y was given to the truth of edges.
NEWER = {
    **{name: HITS + name for name in _HIT_COLUMNS},
    **{name: EDGES + name for name in EDGE_COLUMNS},
    "y": "edge_y",
    "scores": SCORES,
    "labels": "edge_track_labels",
    "truth_map": TRUE_MAP,
    "particle_id": PARTICLE,
    **{name: f"track_particle_{name}" for name in ("pt", "radius", "primary", "nhits", "pdgId")},
    "eta_particle": "track_particle_eta",
    "redundant_split_edges": "track_redundant_split_edges",
}
OLDER = {newer: older for older, newer in NEWER.items()}


def unit_of(reader: str) -> PtUnit | None:
    """Returns the unit in which a data reader of acorn, or bigtrk, writes pT; None if unknown."""
    units = {"Athena": PtUnit.MEV, "TrackML": PtUnit.GEV, "Acts": PtUnit.GEV, "bigtrk": PtUnit.GEV}
    return next((unit for kind, unit in units.items() if reader.startswith(kind)), None)


def is_older(names: Iterable[str]) -> bool:
    """Says whether hits are named by the older scheme alone."""
    return not any(name.startswith(HITS) and name != "hit_id" for name in names)
