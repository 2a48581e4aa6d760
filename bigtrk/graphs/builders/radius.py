"""The radius graph: hits near each other in an embedding [N, D], joined by outward edges [2, E]."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.events.truth import module_ids, overlap_edges, true_edges
from bigtrk.graphs.features import Ints
from bigtrk.native_code import NATIVE, compiled, pointers

# Fused multiply-add would round distances differently from scipy's.
CODE = "radius", Path(__file__).with_name("radius.c"), (), (NATIVE, "-ffp-contract=off")
BLOCK = 32  # points of a leaf in radius.c
ROOM = 64  # pairs per hit: room for these is made first
SAMPLED = 1000  # points of which the pairs are counted first

Embed = Callable[[Event], NDArray[np.float32]]  # hits' places in the embedding, [N, D]


@cache
def library() -> ctypes.CDLL | None:
    """Loads the compiled search; None if it cannot be compiled or loaded."""
    found = compiled(*CODE)
    if found is not None:
        found.near_pairs.restype = ctypes.c_long
    return found


@dataclass(frozen=True)
class RadiusBuilder:
    """Joins hits that are closer than `radius` in the embedding and lie in different modules.

    embedding: digest of the embedding, for records. most: InputError for events with more pairs.
    """

    embed: Embed
    embedding: str
    radius: float
    most: int = 20_000_000

    @property
    def parameters(self) -> dict[str, Any]:
        return {"embedding": self.embedding, "radius": self.radius}

    def doublets(self, event: Event) -> Ints:
        """Returns pairs directed outwards: [2, E]; InputError before it makes over `most` pairs."""
        tree = cKDTree(self.embed(event))
        if has_more_pairs(tree, self.radius, self.most):
            n_pairs = count_pairs(tree, self.radius)
            remedy = "lower --radius or --efficiency, or train the embedding for longer"
            if count_pairs(tree, 0.0) > self.most:  # pairs of hits at one point
                remedy = "many hits lie at one point: correct their x, y and z"
            raise InputError(
                f"{event.name}: {n_pairs:,} pairs of hits are closer than {self.radius:g} in the "
                f"embedding, more than the limit of {self.most:,}; {remedy}"
            )
        return outwards(event.hits, pairs_within(tree, self.radius, event.hits))

    def true(self, event: Event) -> Ints:
        """Returns the true edges [2, T], also those within a layer."""
        return true_pairs(event)


def pairs_within(tree: cKDTree, radius: float, hits: Columns) -> Ints:
    """Returns hit pairs within `radius`, in different modules: [2, E]; none if `radius` is 0."""
    if tree.n < 2 or radius <= 0:
        return np.empty((2, 0), np.int64)
    modules = module_ids(hits)
    if (found := library()) is not None:
        return _near_pairs(found, tree, radius, modules)
    pairs: Ints = tree.query_pairs(radius, output_type="ndarray").astype(np.int64).T
    return pairs[:, (modules[pairs[0]] != modules[pairs[1]]).any(axis=1)]


def _near_pairs(found: ctypes.CDLL, tree: cKDTree, radius: float, modules: Ints) -> Ints:
    """Finds the pairs of `pairs_within` in C, in a fifth of scipy's time."""
    leaves = 1 << ((tree.n - 1) // BLOCK).bit_length()
    hit = np.full((leaves, BLOCK), -1, np.int64)
    hit.flat[: tree.n] = tree.indices
    blocks, absent = tree.data[hit], (hit < 0)[..., None]
    boxes = np.empty((2 * leaves, 2, tree.m))
    np.where(absent, np.inf, blocks).min(axis=1, out=boxes[leaves:, 0])
    np.where(absent, -np.inf, blocks).max(axis=1, out=boxes[leaves:, 1])
    while leaves > 1:
        pairs_of_boxes, leaves = boxes[leaves : 2 * leaves].reshape(-1, 2, 2, tree.m), leaves // 2
        pairs_of_boxes[:, :, 0].min(axis=1, out=boxes[leaves : 2 * leaves, 0])
        pairs_of_boxes[:, :, 1].max(axis=1, out=boxes[leaves : 2 * leaves, 1])
    blocks, modules = np.ascontiguousarray(blocks.transpose(0, 2, 1)), np.ascontiguousarray(modules)
    sizes = ctypes.c_long(len(hit)), ctypes.c_long(tree.m), ctypes.c_double(radius)
    n_pairs = ROOM * tree.n
    while True:
        pairs = np.empty((n_pairs, 2), np.int64)  # pages that are not written take no memory
        room = ctypes.c_long(n_pairs)
        given = pointers(blocks, boxes, hit, modules)
        n_pairs = found.near_pairs(*given, *sizes, *pointers(pairs), room)
        if n_pairs <= len(pairs):
            return pairs[:n_pairs].T


def count_pairs(tree: cKDTree, radius: float) -> int:
    """Counts the pairs of points at most `radius` apart."""
    return int(tree.count_neighbors(tree, radius) - tree.n) // 2 if tree.n else 0


def expected_pairs(tree: cKDTree, radius: float) -> float:
    """Estimates the number of pairs of points at most `radius` apart, from the neighbours of about
    SAMPLED evenly spread points; exact for fewer than 2 SAMPLED points.
    """
    if tree.n < 2:
        return 0.0
    sample = tree.data[:: max(tree.n // SAMPLED, 1)]
    neighbours = tree.query_ball_point(sample, radius, return_length=True) - 1
    return float(neighbours.mean() * tree.n / 2)


def has_more_pairs(tree: cKDTree, radius: float, most: int) -> bool:
    """True if over `most` pairs are at most `radius` apart: by an estimate or, if near, a count."""
    expected = expected_pairs(tree, radius)
    if most / 2 < expected < 2 * most:
        return count_pairs(tree, radius) > most
    return expected > most


def largest_radius(tree: cKDTree, radius: float, most: int) -> float:
    """Returns `radius`, or else about the largest radius (perhaps 0) with at most `most` pairs."""
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
    """Directs pairs [2, E] of hit rows outwards, by distance from the origin, then by row."""
    place = distance_order(hits)
    turned = place[pairs[0]] > place[pairs[1]]
    return np.where(turned, pairs[::-1], pairs)


def distance_order(hits: Columns) -> Ints:
    """Ranks hits by distance from the origin, then by row: [N], from 0."""
    x, y, z = (hits[axis].astype(np.float64) for axis in "xyz")
    order = np.argsort(x**2 + y**2 + z**2, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place
