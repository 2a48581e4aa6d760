"""The report of an event: its hits, tracks, scored edges and sectors in three dimensions, across
the beam and along it, thinned to what a browser can turn.

Shapes: N hits, E edges.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.records.run_folder import Run
from bigtrk.reports import figures
from bigtrk.reports.document import Document, Facts, Number, Plot, Plots, Points
from bigtrk.reports.facts import facts, sentence
from bigtrk.reports.metrics import share_number

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BREAK = -1  # in the place of a hit: the line ends here
MOST_HITS, MOST_SECTOR_HITS, MOST_EDGES, MOST_TRACKS = 50_000, 10_000, 2_000, 300
SCORES = ((0.9, 1.0, 2), (0.5, 0.9, 4), (0.1, 0.5, 5), (0.0, 0.1, 7))  # limits and colour
RULE = (
    "Found and lost: ATLAS matching, strict mode, of the particles to be found; a fake track "
    "matches no particle. Lines join the hits of a track by their distance from the origin. Halo "
    "hits are the ends of cut edges, of which another sector holds a copy. A click on a name of "
    "the legend shows or hides it in all views."
)


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


@dataclass(frozen=True)
class Layer:
    """Hits, or lines through them: rows of hits in order, with BREAK between two lines.

    colour: a number, None for that of text. total: the hits or lines that there are, of which
    `drawn` are in the rows. A layer that is not `shown` waits for a click on its name.
    """

    name: str
    rows: Ints
    colour: int | None
    drawn: int
    total: int
    is_line: bool = False
    is_ring: bool = False
    shown: bool = True


def display_report(
    event: str, picture: EventPicture, told: dict[str, str], run: Run | None = None
) -> Document:
    """Makes the report of an event. told: facts of the event and its tracks by label; run: whose
    model scored the edges.
    """
    drawn = layers(picture)
    n_tracks = len(np.unique(picture.track_id[picture.track_id >= 0]))
    numbers, verdict = [], []
    if picture.found is not None and picture.lost is not None and picture.fake is not None:
        lost, fake = len(picture.lost), len(picture.fake)
        n = lost + len(picture.found)
        numbers += share_number("track efficiency", 1 - lost / n if n else None, n)
        numbers += share_number("fake tracks", fake / n_tracks if n_tracks else None, n_tracks)
        verdict.append(
            f"Of {figures.count(n)} particles to be found {figures.count(lost)} are lost; "
            f"{figures.count(fake)} of {figures.count(n_tracks)} tracks are fakes."
        )
    counts = {"tracks": n_tracks, "hits": len(picture.position), "edges": len(picture.scores)}
    less = [
        f"{layer.name}: {layer.drawn:,} of {layer.total:,}"
        for layer in drawn
        if layer.drawn < layer.total
    ]
    notes = [RULE, *([f"Drawn in part, evenly thinned: {'; '.join(less)}."] if less else [])]
    return Document(
        title=f"bigtrk display: {event}",
        lead=f"Event {event}. {sentence(run) if run else ''}",
        numbers=[(event, [*numbers, *(Number(x, figures.count(n)) for x, n in counts.items())])],
        verdict=verdict,
        parts=[
            Plots("Views", [*_views(picture, drawn)], notes),
            Facts(f"Event {event}", told),
            *([Facts("Model", facts(run))] if run else []),
        ],
    )


def _views(picture: EventPicture, drawn: list[Layer]) -> Iterator[Plot]:
    """Makes the view in three dimensions, whose legend is that of all, with the beam, z, from left
    to right; and two projections.
    """
    x, y, z = picture.position.T
    axes = ("z, mm", "x, mm", "y, mm")
    yield Plot("In three dimensions", axes, _traces(drawn, z, x, y), legend=True)
    yield Plot(
        "Across the beam: r and phi",
        ("x, mm", "y, mm"),
        _traces(drawn, x, y),
        legend=False,
        equal_axes=True,
    )
    traces = _traces(drawn, z, np.hypot(x, y))
    yield Plot("Along the beam: r and z", ("z, mm", "r, mm"), traces, legend=False)


def _traces(drawn: list[Layer], *axes: Floats) -> list[Points]:
    """Makes the points of all layers, NaN at breaks; single precision halves the page."""
    return [
        Points(
            layer.name,
            [
                np.where(layer.rows == BREAK, np.nan, axis[layer.rows]).astype(np.float32)
                for axis in axes
            ],
            layer.colour,
            layer.is_line,
            layer.is_ring,
            layer.shown,
        )
        for layer in drawn
    ]


def layers(picture: EventPicture) -> list[Layer]:
    """Makes all layers that have anything to draw, from the back to the front."""
    made = [*_hits(picture), *_tracks(picture), *_edges(picture), *_sectors(picture)]
    return [layer for layer in made if layer.total]


def _hits(picture: EventPicture) -> Iterator[Layer]:
    """Sorts hits: of particles found and lost, else of fake tracks, else others; without truth, in
    tracks or not.
    """
    if picture.particle_id is None:
        kinds = [("hits in tracks", picture.track_id >= 0, 2)]
    else:
        kinds = [
            ("hits of particles found", _among(picture.particle_id, picture.found), 2),
            ("hits of particles lost", _among(picture.particle_id, picture.lost), 1),
            ("other hits of fake tracks", _among(picture.track_id, picture.fake), 3),
        ]
    left = np.ones(len(picture.position), dtype=bool)
    sorted_hits = []
    for name, mask, colour in kinds:
        sorted_hits.append((name, np.flatnonzero(mask & left), colour))
        left &= ~mask
    share = min(1.0, MOST_HITS / max(len(left), 1))
    for name, rows, colour in (("other hits", np.flatnonzero(left), 7), *sorted_hits):
        yield _points(name, rows, colour, int(share * len(rows)))


def _tracks(picture: EventPicture) -> Iterator[Layer]:
    ids = np.unique(picture.track_id[picture.track_id >= 0])
    if picture.particle_id is not None:
        of_hit = picture.particle_id
        yield _paths(picture, "true tracks, found", of_hit, picture.found, 2)
        yield _paths(picture, "true tracks, lost", of_hit, picture.lost, 1)
        yield _paths(picture, "fake tracks", picture.track_id, picture.fake, 3)
        ids = np.setdiff1d(ids, picture.fake if picture.fake is not None else [])
    yield _paths(picture, "tracks", picture.track_id, ids, 0)


def _edges(picture: EventPicture) -> Iterator[Layer]:
    for low, high, colour in SCORES:
        inside = (picture.scores > low) & (picture.scores <= high)
        inside |= (picture.scores == 0) & (low == 0)
        name = f"edges of score {low:g} to {high:g}"
        yield _segments(picture, name, np.flatnonzero(inside), colour)


def _sectors(picture: EventPicture) -> Iterator[Layer]:
    if picture.sector is None:
        return
    for part in range(int(picture.sector.max(initial=-1)) + 1):
        rows = np.flatnonzero(picture.sector == part)
        most = round(MOST_SECTOR_HITS * len(rows) / len(picture.sector))
        yield _points(f"sector {part}", rows, part, most, shown=False)
    is_cut = picture.sector[picture.edge_index[0]] != picture.sector[picture.edge_index[1]]
    edges = np.flatnonzero(is_cut)
    yield _segments(picture, "cut edges", edges, None)
    halo = np.unique(picture.edge_index[:, edges])
    yield _points("halo hits", halo, None, MOST_EDGES, shown=False, is_ring=True)


def _among(ids: Ints, wanted: Ints | None) -> NDArray[np.bool_]:
    return np.isin(ids, [] if wanted is None else wanted)


def _points(
    name: str, rows: Ints, colour: int | None, most: int, shown: bool = True, is_ring: bool = False
) -> Layer:
    kept = _thinned(rows, most)
    return Layer(name, kept, colour, len(kept), len(rows), shown=shown, is_ring=is_ring)


def _segments(picture: EventPicture, name: str, edges: Ints, colour: int | None) -> Layer:
    """Makes a line of each edge."""
    kept = _thinned(edges, MOST_EDGES)
    ends = picture.edge_index[:, kept]
    rows = np.stack([*ends, np.full(len(kept), BREAK)], axis=1).ravel()
    return Layer(name, rows, colour, len(kept), len(edges), is_line=True, shown=False)


def _paths(
    picture: EventPicture, name: str, of_hit: Ints, wanted: Ints | None, colour: int
) -> Layer:
    """Makes a line through the hits of each of the `wanted` ids, from the origin outwards."""
    ids = np.empty(0, np.int64) if wanted is None else wanted
    kept = _thinned(ids, MOST_TRACKS)
    hits = np.flatnonzero(np.isin(of_hit, kept))
    distance = np.linalg.norm(picture.position[hits], axis=1)
    hits = hits[np.lexsort((distance, of_hit[hits]))]
    ends = np.flatnonzero(np.diff(of_hit[hits])) + 1
    rows = np.insert(hits, ends, BREAK)
    return Layer(name, rows, colour, len(kept), len(ids), is_line=True, shown=name != "tracks")


def _thinned(rows: Ints, most: int) -> Ints:
    """Takes at most `most` rows, evenly."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
