"""Histograms of a particle's quantities, or of eta, from which efficiencies and rates follow.

Shapes: V values, B bins, N hits, P particles.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import ParticleTable, Sector
from bigtrk.graphs.features import eta_of
from bigtrk.records.evaluation import Binned
from bigtrk.tracks.matching import Ids

Floats = NDArray[np.float64]

PT_EDGES = tuple(round(10 ** (step / 6), 3) for step in range(-6, 10))  # GeV
ETA_EDGES = tuple(step / 2 for step in range(-8, 9))
VERTEX_EDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # mm
HITS_EDGES = (*(float(hits) for hits in range(1, 21)), 25.0, 30.0, 50.0)


Bins = dict[str, Binned]
Axes = dict[str, tuple[Floats, tuple[float, ...]]]


def axes_of(particles: ParticleTable) -> Axes:
    """Returns, for each quantity of particles that ratios are binned by, the values [P] and the bin
    limits: pt (GeV), eta, hits, and vertex, the distance of the production vertex from the beam
    line (mm), at least the first limit. An unknown value is NaN.
    """
    x, y = particles.vertex.double().numpy()[:, :2].T
    return {
        "pt": (particles.pt.double().numpy(), PT_EDGES),
        "eta": (particles.eta.double().numpy(), ETA_EDGES),
        "vertex": (np.maximum(np.hypot(x, y), VERTEX_EDGES[0]), VERTEX_EDGES),
        "hits": (particles.nhits.double().numpy(), HITS_EDGES),
    }


def binned_ratio(values: Floats, counts: NDArray[np.bool_], edges: tuple[float, ...]) -> Binned:
    """Counts in each bin all `values` [V] (whole) and those that `counts` [V] marks (part).

    A bin includes its lower limit, but not its upper one.
    """
    places, bins = _places(values, edges), len(edges) - 1
    part, whole = (
        np.bincount(chosen, minlength=bins + 2).tolist() for chosen in (places[counts], places)
    )
    return Binned(
        edges=edges,
        part=part[:bins],
        whole=whole[:bins],
        outside=(part[bins], whole[bins]),
        unknown=(part[bins + 1], whole[bins + 1]),
    )


def added(events: Sequence[Bins]) -> Bins:
    """Adds up the bins of several events (at least one); drops names that any event lacks."""
    names = [name for name in events[0] if all(name in event for event in events)]
    return {name: _sum([event[name] for event in events]) for name in names}


def _sum(ratios: Sequence[Binned]) -> Binned:
    def total(name: str) -> tuple[int, ...]:
        return tuple(map(sum, zip(*(getattr(ratio, name) for ratio in ratios), strict=True)))

    names = ("part", "whole", "outside", "unknown")
    return Binned(edges=ratios[0].edges, **{name: total(name) for name in names})


def _places(values: Floats, edges: tuple[float, ...]) -> Ids:
    """Returns the bin of each value [V]: 0 to B - 1, B if outside all bins, B + 1 if NaN."""
    bins = len(edges) - 1
    place = np.searchsorted(edges, values, side="right") - 1
    # Here, values above the bins, and NaN, have the place `bins`.
    return np.where(np.isnan(values), bins + 1, np.where(place < 0, bins, place))


def hit_column(event: Sector, name: str) -> Floats:
    """Returns node feature `name` of each hit [N]; InputError if the graph does not store it."""
    if name not in event.node_feature_names:
        raise InputError(
            f"{event.event}: has no node feature {name!r}, but tracks need r, phi and z of the "
            "hits; add them to the node features of its graph"
        )
    column = event.node_features[:, event.node_feature_names.index(name)]
    return column.double().numpy()


def hit_eta(event: Sector) -> Floats | None:
    """Returns eta of each hit [N], stored or computed from r and z; None if neither is stored."""
    stored = event.node_feature_names
    if "eta" in stored:
        return hit_column(event, "eta")
    if "r" in stored and "z" in stored:
        return eta_of(hit_column(event, "r"), hit_column(event, "z"))
    return None
