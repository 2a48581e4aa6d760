"""The page that draws an event of N hits and E edges, thinned to what a browser can draw."""

from collections.abc import Iterator
from dataclasses import dataclass, field

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
    "ATLAS matching, strict mode; a fake track matches no particle. Lines join the hits of a track "
    "by their distance from the origin. Halo hits are the ends of cut edges, of which another "
    "sector holds a copy. A click on a name of the legend shows or hides it in all views."
)


@dataclass(frozen=True)
class EventPicture:
    """An event with scored edges and tracks. position [N, 3] (x, y, z in mm), edge_index [2, E],
    scores [E], track_id [N] (-1: none), sector [N] (None: not cut), particle_id [N] (None: no
    truth). found, lost: ids of particles; fake: ids of tracks.
    """

    position: Floats
    edge_index: Ints
    scores: Floats
    track_id: Ints
    sector: Ints | None = None
    particle_id: Ints | None = None
    found: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    lost: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    fake: Ints = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class Layer:
    """Hits, or lines through hits, drawn alike. rows: hits, with BREAK between two lines. colour:
    None: the text's. drawn: hits or lines drawn, of `total`. shown: visible from the beginning.
    """

    name: str
    rows: Ints
    colour: int | None
    drawn: int
    total: int
    is_line: bool = False
    shown: bool = True


def display_report(
    event: str, picture: EventPicture, told: dict[str, str], run: Run | None = None
) -> Document:
    """Makes the report of an event. told: facts by label; run: the run that scored the edges."""
    told, drawn = {**told, **(facts(run) if run else {})}, layers(picture)
    n_tracks = len(np.unique(picture.track_id[picture.track_id >= 0]))
    numbers, verdict = [], []
    if picture.particle_id is not None:
        lost, fake = len(picture.lost), len(picture.fake)
        n = lost + len(picture.found)
        numbers += share_number("track efficiency", 1 - lost / n if n else None, n)
        numbers += share_number("fake tracks", fake / n_tracks if n_tracks else None, n_tracks)
        verdict.append(
            f"Lost: {figures.count(lost)} of {figures.count_of(n, 'particle')} to be found. "
            f"Fake: {figures.count(fake)} of {figures.count_of(n_tracks, 'track')}."
        )
    counts = {"tracks": n_tracks, "hits": len(picture.position), "edges": len(picture.scores)}
    numbers += [Number(what, figures.count(n)) for what, n in counts.items()]
    less = "; ".join(f"{x.name}: {x.drawn:,} of {x.total:,}" for x in drawn if x.drawn < x.total)
    notes = [RULE, *([f"Drawn in part, evenly thinned: {less}."] if less else [])]
    return Document(
        title=f"bigtrk display: {event}",
        lead=f"Event {event}. {sentence(run) if run else ''}",
        numbers=[(event, numbers)],
        verdict=verdict,
        parts=[Plots("Views", [*_views(picture, drawn)], notes), Facts(f"Event {event}", told)],
    )


def _views(picture: EventPicture, drawn: list[Layer]) -> Iterator[Plot]:
    x, y, z = picture.position.T.astype(np.float32)  # halves the page
    for title, axes in (
        ("In three dimensions", {"z, mm": z, "x, mm": x, "y, mm": y}),
        ("Across the beam: r and phi", {"x, mm": x, "y, mm": y}),
        ("Along the beam: r and z", {"z, mm": z, "r, mm": np.hypot(x, y)}),
    ):
        traces = []
        for each in drawn:
            is_cut = each.rows == BREAK
            places = [np.where(is_cut, np.nan, axis[each.rows]) for axis in axes.values()]
            traces.append(Points(each.name, places, each.colour, each.is_line, each.shown))
        is_3d, is_round = len(axes) == 3, "z, mm" not in axes
        yield Plot(title, [*axes], traces, legend=is_3d, equal_axes=is_round)


def layers(picture: EventPicture) -> list[Layer]:
    """Returns all layers with anything to draw, from back to front."""
    track = picture.track_id
    kinds = [("hits in tracks", "", track, track[track >= 0], 2)]
    if (truth := picture.particle_id) is not None:
        kinds = [
            ("hits of particles found", "true tracks, found", truth, picture.found, 2),
            ("hits of particles lost", "true tracks, lost", truth, picture.lost, 1),
            ("other hits of fake tracks", "fake tracks", track, picture.fake, 3),
        ]
    left = np.ones(len(track), dtype=bool)
    share = min(1.0, MOST_HITS / max(len(left), 1))
    made = []
    for name, _, of_hit, ids, colour in (*kinds, ("other hits", "", track, track, 7)):
        rows = np.flatnonzero(np.isin(of_hit, ids) & left)
        made.append(_points(name, rows, colour, int(share * len(rows))))
        left[rows] = False
    made.insert(0, made.pop())
    made += [_paths(picture, name, of, ids, c) for _, name, of, ids, c in kinds if name]
    ids = np.setdiff1d(track[track >= 0], picture.fake)
    made.append(_paths(picture, "tracks", track, ids, 0))
    for low, high, colour in SCORES:
        inside = (picture.scores <= high) & ((picture.scores > low) | (low == 0))
        name = f"edges of score {low:g} to {high:g}"
        made.append(_segments(picture, name, np.flatnonzero(inside), colour))
    return [layer for layer in (*made, *_sectors(picture)) if layer.total]


def _sectors(picture: EventPicture) -> Iterator[Layer]:
    sector = picture.sector
    if sector is None:
        return
    for part in range(int(sector.max(initial=-1)) + 1):
        rows = np.flatnonzero(sector == part)
        most = round(MOST_SECTOR_HITS * len(rows) / len(sector))
        yield _points(f"sector {part}", rows, part, most, shown=False)
    edges = np.flatnonzero(np.diff(sector[picture.edge_index], axis=0)[0])
    yield _segments(picture, "cut edges", edges, None)
    halo = np.unique(picture.edge_index[:, edges])
    yield _points("halo hits", halo, None, MOST_EDGES, shown=False)


def _points(name: str, rows: Ints, colour: int | None, most: int, shown: bool = True) -> Layer:
    kept = _thinned(rows, most)
    return Layer(name, kept, colour, len(kept), len(rows), shown=shown)


def _segments(picture: EventPicture, name: str, edges: Ints, colour: int | None) -> Layer:
    kept = _thinned(edges, MOST_EDGES)
    rows = np.insert(picture.edge_index[:, kept], 2, BREAK, axis=0).T.ravel()
    return Layer(name, rows, colour, len(kept), len(edges), is_line=True, shown=False)


def _paths(picture: EventPicture, name: str, of_hit: Ints, ids: Ints, colour: int) -> Layer:
    """Returns lines through the hits of each of `ids`, by distance from the origin."""
    kept = _thinned(ids, MOST_TRACKS)
    hits = np.flatnonzero(np.isin(of_hit, kept))
    distance = np.linalg.norm(picture.position[hits], axis=1)
    hits = hits[np.lexsort((distance, of_hit[hits]))]
    rows = np.insert(hits, np.flatnonzero(np.diff(of_hit[hits])) + 1, BREAK)
    return Layer(name, rows, colour, len(kept), len(ids), is_line=True, shown=name != "tracks")


def _thinned(rows: Ints, most: int) -> Ints:
    n = min(most, len(rows))
    return rows[np.arange(n) * len(rows) // max(n, 1)]
