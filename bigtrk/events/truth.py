"""Derives from an event's truth the particle of each hit, the true edges and the kinematics."""

import numpy as np
from numpy.typing import NDArray

from bigtrk.console import warn_once
from bigtrk.errors import InputError, number_of
from bigtrk.events.event import MODULE_IDS, NOISE, Columns, Event

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

EXACT = 2**53  # float64 rounds integers above it
MOST_WEIGHT = 1e9  # of a hit; TrackML's sum to 1 per event; keeps other sums finite


def module_ids(hits: Columns) -> Int64:
    """Returns the volume, layer and module of each hit, [N, 3]."""
    return np.stack([hits[name].astype(np.int64) for name in MODULE_IDS], axis=1)


def hit_particles(event: Event) -> Int64:
    """Returns the particle of each hit row, [N]; 0 for noise and for hits the truth does not list.

    If the truth lists a hit more than once (merged hits of ACTS), the first row counts. InputError
    without truth.
    """
    particle = _of_hits(event, _truth(event)["particle_id"], NOISE)
    return particle.astype(np.int64, copy=False)


def _of_hits(event: Event, column: NDArray[np.generic], unlisted: float) -> NDArray[np.generic]:
    """Returns a column's value at each hit's first row in the truth, or `unlisted`: [T] -> [N]."""
    hit_id, of_truth = (
        table["hit_id"].astype(np.int64, copy=False) for table in (event.hits, _truth(event))
    )
    listed, first = np.unique(of_truth, return_index=True)
    return np.append(column[first], np.array(unlisted, column.dtype))[rows_of(hit_id, listed)]


def hit_weights(event: Event) -> Float64 | None:
    """Returns each hit's TrackML weight, [N]; 0 for hits that the truth does not list. None if the
    truth has no weights. InputError without truth, or if a weight is negative or too large.
    """
    truth = _truth(event)
    if "weight" not in truth:
        return None
    weight = truth["weight"].astype(np.float64, copy=False)
    if len(bad := np.flatnonzero((weight < 0) | (weight > MOST_WEIGHT))):
        raise InputError(
            f"{event.name}-truth, row {bad[0] + 2}: the weight of hit {truth['hit_id'][bad[0]]} "
            f"is {weight[bad[0]]:g}, but must be from 0 to {MOST_WEIGHT:g}; correct it"
        )
    if np.isnan(weight).all():
        return None
    return _of_hits(event, weight, 0.0).astype(np.float64, copy=False)


def true_edges(event: Event) -> Int64:
    """Returns the true edges [2, T]: pairs of hit rows consecutive on a particle, inner to outer.

    A particle's hits are ordered by distance from its production vertex (the origin, if the
    particle is not listed). Consecutive hits on one layer form a group, and every hit of a group is
    joined to every hit of the next. InputError without truth.
    """
    row, start, size = _layer_groups(event)
    particle = hit_particles(event)[row[start]]
    inner = np.flatnonzero(particle[:-1] == particle[1:])
    source, destination = _all_pairs(start[inner], size[inner], start[inner + 1], size[inner + 1])
    return np.stack([row[source], row[destination]])


def overlap_edges(event: Event) -> Int64:
    """Returns the pairs [2, T] of hit rows that one particle left on one layer, in modules that
    overlap. Pairs within one module are left out. A pair is ordered as in `true_edges`.
    """
    row, start, size = _layer_groups(event)
    first, second = _all_pairs(start, size, start, size)
    module = event.hits["module_id"][row]
    kept = (first < second) & (module[first] != module[second])
    return np.stack([row[first[kept]], row[second[kept]]])


def particle_kinematics(event: Event) -> Columns:
    """Returns a table of particles that are listed or have a hit in the truth, ascending by id.

    particle_id [P] int64, pt (GeV) eta phi (rad) vx vy vz (mm) [P] float64, NaN if the particle is
    not listed, nhits [P] int64: its hits in this event's truth. InputError without truth.
    """
    particle_of_hit = hit_particles(event)
    seen, counts = np.unique(particle_of_hit[particle_of_hit != NOISE], return_counts=True)
    listed = np.empty(0, dtype=np.int64) if event.particles is None else _ids(event.particles)
    ids = np.union1d(seen, listed[listed != NOISE])
    nhits = np.zeros(len(ids), dtype=np.int64)
    nhits[np.searchsorted(ids, seen)] = counts
    px, py, pz = (of_particles(event, ids, name) for name in ("px", "py", "pz"))
    pt = np.hypot(px, py)
    with np.errstate(divide="ignore", invalid="ignore"):
        eta = np.arcsinh(pz / pt)
    vertex = {name: of_particles(event, ids, name) for name in ("vx", "vy", "vz")}
    phi = np.arctan2(py, px)
    return {"particle_id": ids, "pt": pt, "eta": eta, "phi": phi, **vertex, "nhits": nhits}


def warn_of_odd_truth(event: Event, where: str) -> None:
    """Warns if truth and particles disagree: a listed particle has the id of noise, particles with
    hits are not listed, or a particle has more hits than its `nhits`. where: for messages.
    """
    if event.truth is None or event.particles is None:
        return
    listed, particle = _ids(event.particles), hit_particles(event)
    if NOISE in listed and (noise := int((particle == NOISE).sum())):
        warn_once(
            "particle 0",
            f"{where}: the table of particles lists id {NOISE}, which means noise, so "
            f"{number_of(noise, 'hit')} will be noise; if it is a particle, add 1 to every "
            "particle_id of particles and truth",
        )
    unlisted = np.setdiff1d(particle, np.append(listed, NOISE))
    if len(unlisted):
        remedy = ""
        if unlisted[-1] > EXACT:
            remedy = "; if float64 has rounded ids, write them again as integers"
        elif unlisted[0] < 0:
            remedy = f"; if {unlisted[0]} is noise, write {NOISE}: edges of one id are true"
        warn_once(
            "particles that are not listed",
            f"{where}: {np.isin(particle, unlisted).sum():,} of {len(particle):,} hits belong to "
            f"{number_of(len(unlisted), 'particle')}, such as {unlisted[0]}, missing in the table "
            f"of particles; momentum and vertex of such particles are taken as unknown{remedy}",
        )
    odd, hits, nhits = overfull_particles(event)
    if len(odd):
        warn_once(
            "nhits",
            f"{where}: particle {odd[0]} has {hits[0]:,} hits, but its nhits is {nhits[0]:,} "
            f"({number_of(len(odd), 'such particle')}); if two particles share an id, give each "
            "its own, or edges between them count as true",
        )


def overfull_particles(event: Event) -> tuple[Int64, Int64, Int64]:
    """Finds particles with more hits in the truth than their `nhits`: ids, numbers of hits, nhits.
    Two particles may share such an id. All are empty if nhits is not known.
    """
    seen, counts = np.unique(hit_particles(event), return_counts=True)
    nhits = np.full(len(seen), np.nan)
    if event.particles is not None and "nhits" in event.particles:
        nhits = of_particles(event, seen, "nhits")
    over = (seen != NOISE) & (nhits > 0) & (counts > nhits)
    return seen[over], counts[over], nhits[over].astype(np.int64)


def _layer_groups(event: Event) -> tuple[Int64, Int64, Int64]:
    """Groups consecutive hits on one layer: rows of hits, sorted by particle and distance from its
    vertex, and the start and size of each group in them.
    """
    particle = hit_particles(event)
    row = np.flatnonzero(particle != NOISE)
    offset = [
        event.hits[axis].astype(np.float64, copy=False)[row]
        - np.nan_to_num(of_particles(event, particle[row], f"v{axis}"))
        for axis in "xyz"
    ]
    row = row[np.lexsort((np.linalg.norm(offset, axis=0), particle[row]))]
    keys = np.column_stack([particle[row], module_ids(event.hits)[row, :2]])
    start = np.flatnonzero((np.diff(keys, axis=0, prepend=NOISE) != 0).any(axis=1))
    return row, start, np.diff(start, append=len(row))


def _truth(event: Event) -> Columns:
    if event.truth is None:
        raise InputError(
            f"{event.name}: has hits but no truth, so labels cannot be made; add "
            f"{event.name}-truth.csv, or particle_id to ColliderML's hits, or use the event for "
            "inference only"
        )
    return event.truth


def _ids(particles: Columns) -> Int64:
    return particles["particle_id"].astype(np.int64, copy=False)


def rows_of(ids: Int64, known: Int64) -> Int64:
    """Returns the place of each id in `known`, which lists an id once; -1 for absent ids."""
    order = np.argsort(known, kind="stable")
    row: Int64 = np.append(order, -1)[np.searchsorted(known, ids, sorter=order)]
    return np.where(np.append(known, NOISE)[row] == ids, row, -1)


def of_particles(event: Event, ids: Int64, name: str) -> Float64:
    """Returns column `name` of the particles `ids` [P] as float64; NaN for unlisted particles."""
    if event.particles is None:
        return np.full(len(ids), np.nan)
    values: Float64 = np.append(event.particles[name].astype(np.float64), np.nan)
    return values[rows_of(ids, _ids(event.particles))]


def _all_pairs(start_a: Int64, size_a: Int64, start_b: Int64, size_b: Int64) -> tuple[Int64, Int64]:
    """Pairs each index of range a with each of range b, for each of the given pairs of ranges."""
    pairs = size_a * size_b
    group = np.repeat(np.arange(len(pairs)), pairs)
    within = np.arange(len(group)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    return start_a[group] + within // size_b[group], start_b[group] + within % size_b[group]
