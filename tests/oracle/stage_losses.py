"""Finds in plain Python where a pipeline loses particles: pair by pair, particle by particle.

A pair is that of two hit rows, the smaller first.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise, product

from bigtrk.events.event import Event

Pair = tuple[int, int]


@dataclass(frozen=True)
class Hit:
    """A hit's row, its distance from its particle's vertex, its layer and its module there."""

    row: int
    distance: float
    layer: tuple[int, int]
    module: int


@dataclass(frozen=True)
class Particle:
    """A particle with its hits from the vertex outwards, and against what losses are shown."""

    hits: tuple[Hit, ...]
    pt: float
    eta: float
    phi: float
    vertex: float

    @property
    def rows(self) -> set[int]:
        return {hit.row for hit in self.hits}

    @property
    def true(self) -> set[Pair]:
        """The pairs of hits on neighbouring layers, and on two modules of one."""
        groups = [list(group) for _, group in groupby(self.hits, key=lambda hit: hit.layer)]
        pairs = {ordered(a.row, b.row) for x, y in pairwise(groups) for a, b in product(x, y)}
        for group in groups:
            found = combinations(group, 2)
            pairs |= {ordered(a.row, b.row) for a, b in found if a.module != b.module}
        return pairs


def ordered(a: int, b: int) -> Pair:
    return min(a, b), max(a, b)


def particles_of(event: Event) -> list[Particle]:
    """The particles that the event lists."""
    assert event.truth is not None
    assert event.particles is not None
    rows = defaultdict(list)
    place = {hit: row for row, hit in enumerate(event.hits["hit_id"].tolist())}
    for hit, particle in zip(
        event.truth["hit_id"].tolist(), event.truth["particle_id"].tolist(), strict=True
    ):
        rows[particle].append(place[hit])
    names = ("particle_id", "vx", "vy", "vz", "px", "py", "pz")
    columns = [event.particles[name].tolist() for name in names]
    found = []
    for particle, vx, vy, vz, px, py, pz in zip(*columns, strict=True):
        hits = [_hit(event, row, (vx, vy, vz)) for row in rows[particle]]
        found.append(
            Particle(
                hits=tuple(sorted(hits, key=lambda hit: hit.distance)),
                pt=math.sqrt(px * px + py * py),
                eta=-math.log(math.tan(math.atan2(math.sqrt(px * px + py * py), pz) / 2)),
                phi=math.atan2(py, px),
                vertex=math.sqrt(vx * vx + vy * vy),
            )
        )
    return found


def as_particle(event: Event, track: Iterable[int]) -> Particle:
    """A track as if its hits were those of a particle from the origin."""
    hits = [_hit(event, row, (0.0, 0.0, 0.0)) for row in track]
    ascending = tuple(sorted(hits, key=lambda hit: hit.distance))
    return Particle(ascending, math.nan, math.nan, math.nan, math.nan)


def _hit(event: Event, row: int, vertex: Sequence[float]) -> Hit:
    point = [float(event.hits[axis][row]) for axis in "xyz"]
    volume, layer, module = (
        int(event.hits[name][row]) for name in ("volume_id", "layer_id", "module_id")
    )
    return Hit(row, math.dist(point, vertex), (volume, layer), module)


def is_found(particle: Particle, tracks: Iterable[set[int]], min_hits: int) -> bool:
    """A track of enough hits, more than half of them the particle's."""
    return any(
        len(track) >= min_hits and 2 * len(track & particle.rows) > len(track) for track in tracks
    )


def joined(pairs: Iterable[Pair]) -> list[set[int]]:
    """The groups of hits that pairs join."""
    groups: list[set[int]] = []
    for pair in pairs:
        touched = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in touched]
        groups.append(set(pair).union(*touched))
    return groups


@dataclass(frozen=True)
class Left:
    """Holds what stages leave: the pairs of the radius graph, of the filter, those that the
    classifier takes for true, the groups that these join, and the tracks.
    """

    radius: set[Pair]
    filter: set[Pair]
    classifier: set[Pair]
    groups: list[set[int]]
    tracks: list[set[int]]


def category(particle: Particle, left: Left, min_hits: int) -> str:
    """The first class that fits."""

    def lost(pairs: set[Pair]) -> bool:
        return not is_found(particle, joined(particle.true & pairs), min_hits)

    if is_found(particle, left.tracks, min_hits):
        return "found"
    if lost(particle.true):
        return "hits"
    if lost(left.radius):
        return "radius"
    if lost(left.filter):
        return "filter"
    if lost(left.classifier):
        return "true_edges_cut"
    return "builder" if is_found(particle, left.groups, min_hits) else "merged"


def nearest(particle: Particle, others: Iterable[Particle]) -> float:
    """The distance in eta and phi to the nearest other particle."""
    distances = [math.inf]
    for other in others:
        if other is not particle:
            turn = abs(particle.phi - other.phi)
            turn = min(turn, 2 * math.pi - turn)
            distances.append(math.sqrt((particle.eta - other.eta) ** 2 + turn**2))
    return min(distances)
