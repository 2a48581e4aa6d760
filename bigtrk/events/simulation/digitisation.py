"""Digitisation: deposits become measured hits and the cells that fired."""

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Columns
from bigtrk.events.geometry import DetectorLayers
from bigtrk.events.simulation.deposits import Deposits

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

STRIP_PITCH = 1.0  # mm; modules of a longer pitch_v are strips, whose cells read 1
# mm; a hit of a longer strip is put into its middle: an error of a third of its length would leave
# the module.
LONG_STRIP = 20.0


def merge_deposits(deposits: Deposits, layers: DetectorLayers) -> tuple[Int64, Int64]:
    """Merges deposits in the same cell of a module into one hit.

    Returns the hit of each deposit, [D], and each hit's deposit of largest charge, [N]; hits
    are in order of layer and module.
    """
    position = _cell_position(deposits, deposits.u, deposits.v, layers)
    channel_u, channel_v = (np.floor(cells).astype(np.int64) for cells in position)
    module = deposits.row * layers.n_phi[deposits.layer] + deposits.column
    order, begin = _groups(deposits.layer, module, channel_u, channel_v)
    count = np.diff(begin, append=len(order))
    hit = np.empty(len(order), dtype=np.int64)
    hit[order] = np.repeat(np.arange(len(begin)), count)
    by_charge = np.lexsort((-deposits.charge, hit))
    return hit, by_charge[begin]


def measure(
    deposits: Deposits, hit: Int64, layers: DetectorLayers, rng: np.random.Generator
) -> tuple[Float64, Float64]:
    """Measures u and v of each hit, [N] (mm): the charge's mean, with error pitch / sqrt(12), but
    for v of long strips the middle of the strip.
    """
    weight = np.bincount(hit, deposits.charge)
    layer = np.zeros(len(weight), dtype=np.int64)
    layer[hit] = deposits.layer
    measured = []
    for true, pitch in ((deposits.u, layers.pitch_u), (deposits.v, layers.pitch_v)):
        mean = np.bincount(hit, deposits.charge * true) / weight
        measured.append(mean + rng.normal(size=len(mean)) * pitch[layer] / np.sqrt(12))
    middle = _middle_of_strip(mean, layer, layers)
    return measured[0], np.where(layers.pitch_v[layer] > LONG_STRIP, middle, measured[1])


def _middle_of_strip(v: Float64, layer: Int64, layers: DetectorLayers) -> Float64:
    """Returns the middle of the strip, within its module, that each v is on: [N] -> [N] (mm)."""
    half, pitch = layers.row_length[layer] / 2, layers.pitch_v[layer]
    start = np.floor(_in_cells(v, half, pitch)) * pitch
    middle: Float64 = (start + np.minimum(start + pitch, 2 * half)) / 2 - half
    return middle


def to_global(
    lead: Deposits, u: Float64, v: Float64, layers: DetectorLayers
) -> tuple[Float64, Float64, Float64]:
    """Returns x, y, z (mm) of the points u, v on the modules of `lead`, each [N]."""
    barrel = layers.is_barrel[lead.layer]
    across = layers.surface(lead.layer, lead.column)
    along = layers.row_centre(lead.layer, lead.row) + v
    radius = np.where(barrel, across, along)
    phi = layers.column_phi(lead.layer, lead.column)
    phi += u / layers.arc_radius(lead.layer, lead.column, lead.row)
    return radius * np.cos(phi), radius * np.sin(phi), np.where(barrel, along, across)


def fired_cells(deposits: Deposits, hit: Int64, layers: DetectorLayers) -> Columns:
    """Returns the cells of each hit: hit [C] (0-based), ch0 ch1 [C] int64, value [C] float64.

    A deposit's track is a straight line through the sensor; each cell it passes gets the charge
    of its part of the line. Cells that several deposits of a hit share are summed; strips read 1.
    """
    half_depth = layers.thickness[deposits.layer] / 2
    reach_u, reach_v = half_depth * deposits.slope_u, half_depth * deposits.slope_v
    entry = _cell_position(deposits, deposits.u - reach_u, deposits.v - reach_v, layers)
    leave = _cell_position(deposits, deposits.u + reach_u, deposits.v + reach_v, layers)
    deposit, start, end = _segments(entry, leave)
    middle = (start + end) / 2
    channels = [
        np.floor(a[deposit] + middle * (b - a)[deposit]).astype(np.int64)
        for a, b in zip(entry, leave, strict=True)
    ]
    value = (end - start) * deposits.charge[deposit]
    order, begin = _groups(hit[deposit], *channels)
    total = np.add.reduceat(value[order], begin) if len(begin) else value
    first = order[begin]
    is_strip = layers.pitch_v[deposits.layer[deposit[first]]] > STRIP_PITCH
    return {
        "hit": hit[deposit[first]],
        "ch0": channels[0][first],
        "ch1": channels[1][first],
        "value": np.where(is_strip, 1.0, total),
    }


def _groups(*keys: Int64) -> tuple[Int64, NDArray[np.intp]]:
    """Returns the order that sorts by `keys` and the places where a new combination starts."""
    order = np.lexsort(keys[::-1])
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    return order, np.flatnonzero(starts)


def _cell_position(
    deposits: Deposits, u: Float64, v: Float64, layers: DetectorLayers
) -> tuple[Float64, Float64]:
    """Returns positions in cells from the module's corner, clipped at its edges."""
    layer = deposits.layer
    half_v = layers.row_length[layer] / 2
    half_u = layers.half_angle[layer] * layers.arc_radius(layer, deposits.column, deposits.row)
    return (
        _in_cells(u, half_u, layers.pitch_u[layer]),
        _in_cells(v, half_v, layers.pitch_v[layer]),
    )


def _in_cells(along: Float64, half: Float64, pitch: Float64) -> Float64:
    return np.clip(along + half, 0.0, np.nextafter(2 * half, 0.0)) / pitch


def _segments(
    entry: tuple[Float64, ...], leave: tuple[Float64, ...]
) -> tuple[Int64, Float64, Float64]:
    """Cuts each track at the borders of cells: deposit [S] int64, start and end [S] (0 to 1)."""
    every = np.arange(len(entry[0]))
    cuts = [(every, np.zeros(len(every))), (every, np.ones(len(every)))]
    cuts += [_border_crossings(a, b) for a, b in zip(entry, leave, strict=True)]
    deposit, part = (np.concatenate(parts) for parts in zip(*cuts, strict=True))
    order = np.lexsort((part, deposit))
    deposit, part = deposit[order], part[order]
    same = deposit[1:] == deposit[:-1]
    return deposit[1:][same], part[:-1][same], part[1:][same]


def _border_crossings(entry: Float64, leave: Float64) -> tuple[Int64, Float64]:
    """Finds tracks that cross a whole number from `entry` to `leave`, and after which fraction."""
    low, high = np.minimum(entry, leave), np.maximum(entry, leave)
    first = np.floor(low).astype(np.int64) + 1
    count = np.maximum(np.ceil(high).astype(np.int64) - first, 0)
    track = np.repeat(np.arange(len(entry)), count)
    within = np.arange(len(track)) - np.repeat(np.cumsum(count) - count, count)
    border = first[track] + within
    return track, (border - entry[track]) / (leave - entry)[track]
