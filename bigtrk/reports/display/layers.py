"""What a display draws of an event: layers of hits and lines, thinned to what a browser can turn.

Shapes: N hits, E edges.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.reports.elements.charts import colour

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BREAK = -1  # in the place of a hit: the line ends here
MOST_HITS, MOST_SECTOR_HITS, MOST_EDGES, MOST_TRACKS = 50_000, 10_000, 2_000, 300
SCORES = ((0.9, 1.0, 2), (0.5, 0.9, 4), (0.1, 0.5, 5), (0.0, 0.1, 7))  # limits and colour


@dataclass(frozen=True)
class EventPicture:
    """An event with its scored edges and tracks.

    position [N, 3] (x, y, z in mm), edge_index [2, E], scores [E] in [0, 1], track_id [N] (-1: in
    no track), sector [N] (None: of an event that is not cut), particle_id [N] (None: no truth).
    found, lost: ids of the particles to be found; fake: ids of the tracks that match none.
    """

    position: Floats
    edge_index: Ints
    scores: Floats
    track_id: Ints
    sector: Ints | None = None
    particle_id: Ints | None = None
    found: Ints | None = None
    lost: Ints | None = None
    fake: Ints | None = None

    @property
    def n_tracks(self) -> int:
        """Counts the tracks."""
        return len(np.unique(self.track_id[self.track_id >= 0]))


@dataclass(frozen=True)
class Layer:
    """Hits, or lines through them: rows of hits in order, with BREAK between two lines.

    total: the hits or lines that there are, of which `drawn` are in the rows. A layer that is not
    `shown` waits for a click on its name.
    """

    name: str
    rows: Ints
    colour: str
    drawn: int
    total: int
    is_line: bool = False
    is_ring: bool = False
    shown: bool = True


def layers(picture: EventPicture) -> list[Layer]:
    """Makes all layers that have anything to draw, from the back to the front."""
    made = [*_hits(picture), *_tracks(picture), *_edges(picture), *_sectors(picture)]
    return [layer for layer in made if layer.total]


def _hits(picture: EventPicture) -> Iterator[Layer]:
    """Sorts hits: of particles found and lost, else of fake tracks, else others; without truth, in
    tracks or not.
    """
    in_track = picture.track_id >= 0
    if picture.particle_id is None:
        kinds = [("hits in tracks", in_track, colour(2))]
    else:
        kinds = [
            ("hits of particles found", _among(picture.particle_id, picture.found), colour(2)),
            ("hits of particles lost", _among(picture.particle_id, picture.lost), colour(1)),
            ("other hits of fake tracks", _among(picture.track_id, picture.fake), colour(3)),
        ]
    left = np.ones(len(picture.position), dtype=bool)
    sorted_hits = []
    for name, mask, paint in kinds:
        sorted_hits.append((name, np.flatnonzero(mask & left), paint))
        left &= ~mask
    share = min(1.0, MOST_HITS / max(len(left), 1))
    for name, rows, paint in (("other hits", np.flatnonzero(left), colour(7)), *sorted_hits):
        yield _points(name, rows, paint, int(share * len(rows)))


def _tracks(picture: EventPicture) -> Iterator[Layer]:
    ids = np.unique(picture.track_id[picture.track_id >= 0])
    if picture.particle_id is not None:
        of = picture.particle_id
        yield _paths(picture, "true tracks, found", of, picture.found, colour(2))
        yield _paths(picture, "true tracks, lost", of, picture.lost, colour(1))
        yield _paths(picture, "fake tracks", picture.track_id, picture.fake, colour(3))
        ids = np.setdiff1d(ids, picture.fake if picture.fake is not None else [])
    yield _paths(picture, "tracks", picture.track_id, ids, colour(0))


def _edges(picture: EventPicture) -> Iterator[Layer]:
    for low, high, number in SCORES:
        inside = (picture.scores > low) & (picture.scores <= high)
        inside |= (picture.scores == 0) & (low == 0)
        name = f"edges of score {low:g} to {high:g}"
        yield _segments(picture, name, np.flatnonzero(inside), colour(number))


def _sectors(picture: EventPicture) -> Iterator[Layer]:
    if picture.sector is None:
        return
    for part in range(int(picture.sector.max(initial=-1)) + 1):
        rows = np.flatnonzero(picture.sector == part)
        most = round(MOST_SECTOR_HITS * len(rows) / len(picture.sector))
        yield _points(f"sector {part}", rows, colour(part), most, shown=False)
    is_cut = picture.sector[picture.edge_index[0]] != picture.sector[picture.edge_index[1]]
    edges = np.flatnonzero(is_cut)
    yield _segments(picture, "cut edges", edges, "var(--text)")
    halo = np.unique(picture.edge_index[:, edges])
    yield _points("halo hits", halo, "var(--text)", MOST_EDGES, shown=False, is_ring=True)


def _among(ids: Ints, wanted: Ints | None) -> NDArray[np.bool_]:
    return np.isin(ids, [] if wanted is None else wanted)


def _points(
    name: str, rows: Ints, paint: str, most: int, shown: bool = True, is_ring: bool = False
) -> Layer:
    kept = _thinned(rows, most)
    return Layer(name, kept, paint, len(kept), len(rows), shown=shown, is_ring=is_ring)


def _segments(picture: EventPicture, name: str, edges: Ints, paint: str) -> Layer:
    """Makes a line of each edge."""
    kept = _thinned(edges, MOST_EDGES)
    ends = picture.edge_index[:, kept]
    rows = np.stack([*ends, np.full(len(kept), BREAK)], axis=1).ravel()
    return Layer(name, rows, paint, len(kept), len(edges), is_line=True, shown=False)


def _paths(
    picture: EventPicture, name: str, of_hit: Ints, wanted: Ints | None, paint: str
) -> Layer:
    """Makes a line through the hits of each of the `wanted` ids, from the origin outwards."""
    ids = np.empty(0, np.int64) if wanted is None else wanted
    kept = _thinned(ids, MOST_TRACKS)
    hits = np.flatnonzero(np.isin(of_hit, kept))
    distance = np.linalg.norm(picture.position[hits], axis=1)
    hits = hits[np.lexsort((distance, of_hit[hits]))]
    ends = np.flatnonzero(np.diff(of_hit[hits])) + 1
    rows = np.insert(hits, ends, BREAK)
    return Layer(name, rows, paint, len(kept), len(ids), is_line=True, shown=name != "tracks")


def _thinned(rows: Ints, most: int) -> Ints:
    """Takes at most so many rows, evenly."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
