"""The losses of a track finder: by the graph, by edges cut, or by edges kept wrongly.

Shapes: C reconstructable particles.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigtrk.graphs.event_graph import ParticleTable
from bigtrk.tracks.bins import Axes, Bins, axes_of, binned_ratio
from bigtrk.tracks.overlaps import Ids

CATEGORIES = ("found", "no_true_edges", "too_few_true_edges", "true_edges_cut", "merged")
Mask = NDArray[np.bool_]


def loss_categories(
    found: Mask, has_true_edges: Mask, found_perfectly: Mask, found_by_true_edges: Mask
) -> Ids:
    """Returns each particle's place among CATEGORIES, the first that fits: [C] each -> [C].

    found: a track of the model matches it. no_true_edges: the graph holds no true edge of it.
    too_few_true_edges: perfect scores (all true edges kept and no other) do not find it either.
    true_edges_cut: nor do the true edges alone that the model keeps. merged: those would find it,
    so that false edges, which join them to others, are what loses it.
    """
    return first_that_fits([found, ~has_true_edges, ~found_perfectly, ~found_by_true_edges])


def first_that_fits(conditions: Sequence[Mask]) -> Ids:
    """Returns the place of the first condition that each particle meets, that behind the last one
    where it meets none: [C] each (at least one) -> [C].
    """
    place: Ids = np.argmax([*conditions, np.ones_like(conditions[0])], axis=0)
    return place


def loss_bins(category: Ids, particle: Ids, particles: ParticleTable) -> Bins:
    """Bins each category's share of particles by `axes_of`: category [C], particle [C].

    particle: rows of the table. The names are "found_by_pt", "found_by_eta" and so on.
    """
    axes = axes_of(particles).items()
    chosen = {axis: (values[particle], edges) for axis, (values, edges) in axes}
    return category_bins(category, CATEGORIES, chosen)


def category_bins(category: Ids, names: Sequence[str], axes: Axes) -> Bins:
    """Bins each category's share of particles: category [C], its places among `names`.

    axes: of each quantity the particles' values [C] and the limits of its bins. The names are
    "NAME_by_AXIS".
    """
    return {
        f"{name}_by_{axis}": binned_ratio(values, category == place, edges)
        for axis, (values, edges) in axes.items()
        for place, name in enumerate(names)
    }
