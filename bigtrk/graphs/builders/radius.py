"""The radius graph: hits near each other in an embedding [N, D], joined outwards [2, E]."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.events.truth import module_ids, overlap_edges, true_edges
from bigtrk.graphs.features import Ints

SAMPLED = 2000  # points of which the pairs are counted first

Embed = Callable[[Event], NDArray[np.float32]]  # hits' places in the embedding, [N, D]


@dataclass(frozen=True)
class RadiusBuilder:
    """Joins all hits that are closer than `radius` in the embedding, but not two of one module.

    embedding: digest of the embedding, for records. most: an event with more pairs is refused.
    """

    embed: Embed
    embedding: str
    radius: float
    most: int = 20_000_000

    @property
    def parameters(self) -> dict[str, Any]:
        return {"embedding": self.embedding, "radius": self.radius}

    def doublets(self, event: Event) -> Ints:
        """Gives pairs of hits, outwards: [2, E]; InputError before more than `most` are made."""
        tree = cKDTree(self.embed(event))
        if has_more_pairs(tree, self.radius, self.most):
            n_pairs = count_pairs(tree, self.radius)
            remedy = "lower --radius or --efficiency, or train the embedding for longer"
            if count_pairs(tree, 0.0) > self.most:  # which no radius parts
                remedy = "the hits are in one place: correct their coordinates"
            raise InputError(
                f"{event.name}: {n_pairs:,} pairs of hits are closer than {self.radius:g} in the "
                f"embedding, more than the limit of {self.most:,}; {remedy}"
            )
        return outwards(event.hits, pairs_within(tree, self.radius, event.hits))

    def true(self, event: Event) -> Ints:
        """Returns the true edges [2, T], also those within a layer."""
        return true_pairs(event)


def pairs_within(tree: cKDTree, radius: float, hits: Columns) -> Ints:
    """Returns pairs of hit rows within `radius`, in two modules: [2, E]; none if it is 0."""
    if tree.n < 2 or radius <= 0:
        return np.empty((2, 0), np.int64)
    pairs: Ints = tree.query_pairs(radius, output_type="ndarray").astype(np.int64).T
    modules = module_ids(hits)
    return pairs[:, (modules[pairs[0]] != modules[pairs[1]]).any(axis=1)]


def count_pairs(tree: cKDTree, radius: float) -> int:
    """Counts the pairs of points that are within `radius` of each other."""
    return int(tree.count_neighbors(tree, radius) - tree.n) // 2 if tree.n else 0


def expected_pairs(tree: cKDTree, radius: float) -> float:
    """Estimates how many pairs of points are within `radius` of each other, from the neighbours of
    about SAMPLED evenly spread points; for fewer than 2 SAMPLED points the number is exact.
    """
    if tree.n < 2:
        return 0.0
    sample = tree.data[:: max(tree.n // SAMPLED, 1)]
    neighbours = tree.query_ball_point(sample, radius, return_length=True) - 1
    return float(neighbours.mean() * tree.n / 2)


def has_more_pairs(tree: cKDTree, radius: float, most: int) -> bool:
    """Whether more than `most` pairs are within `radius`, counted only if the estimate is near."""
    expected = expected_pairs(tree, radius)
    if most / 2 < expected < 2 * most:
        return count_pairs(tree, radius) > most
    return expected > most


def largest_radius(tree: cKDTree, radius: float, most: int) -> float:
    """Returns `radius`, or nearly the largest with at most `most` expected pairs, perhaps 0."""
    if not has_more_pairs(tree, radius, most):
        return radius
    low, high = 0.0, radius
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_pairs(tree, middle) <= most else (low, middle)
    return low


def true_pairs(event: Event) -> Ints:
    """Returns an event's true edges, also those within a layer, directed outwards: [2, T]."""
    return outwards(event.hits, np.concatenate([true_edges(event), overlap_edges(event)], axis=1))


def outwards(hits: Columns, pairs: Ints) -> Ints:
    """Orders each of `pairs` [2, E] of hit rows by distance from the origin, then by row."""
    place = distance_order(hits)
    turned = place[pairs[0]] > place[pairs[1]]
    return np.where(turned, pairs[::-1], pairs)


def distance_order(hits: Columns) -> Ints:
    """Returns the place of each hit [N] by distance from the origin, then by row."""
    x, y, z = (hits[axis].astype(np.float64) for axis in "xyz")
    order = np.argsort(x**2 + y**2 + z**2, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place
