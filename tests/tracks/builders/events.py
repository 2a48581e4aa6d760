"""Makes events for tests of the merge tree, by hand and at random, and qualities by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.candidates import FEATURES
from bigtrk.tracks.builders.merge_tree import WIDTHS, Quality
from tests.tracks.builders.graphs import Edge, at

RADII = np.array([32.0, 72, 116, 172, 260, 360, 500, 660])  # mm, of cylinders
MODULES = 64  # around each


def scored(
    edges: Sequence[Edge],
    position: Sequence[Sequence[float]],
    modules: Sequence[Sequence[int]] | None = None,
) -> ScoredGraph:
    """Makes a graph of hits at `position` [N, 3], in `modules` [N, 3] if these are known."""
    graph = at(np.array(position, np.float64).reshape(-1, 3), edges)
    known = None if modules is None else np.array(modules, np.int64).reshape(-1, 3)
    return replace(graph, modules=known)


def random_graph(rng: np.random.Generator, n_hits: int, n_edges: int) -> ScoredGraph:
    """Draws a graph of few modules, distances and scores, so that many are equal."""
    return ScoredGraph(
        edge_index=rng.integers(n_hits, size=(2, n_edges)),
        scores=rng.integers(0, 11, n_edges).astype(np.float32) / 10,
        position=rng.choice([0.0, 9.0, 12.0], size=(n_hits, 3)),
        modules=rng.integers((2, 3, 4), size=(n_hits, 3)),
    )


def helix_event(seed: int, n_particles: int = 60) -> tuple[ScoredGraph, NDArray[np.int64]]:
    """Draws particles of 8 hits each on cylinders, true edges with high scores and as many others
    with any: returns the graph, and each hit's particle.
    """
    rng = np.random.default_rng(seed)
    shape = (n_particles, 1)
    phi, slope = rng.uniform(-np.pi, np.pi, shape), rng.uniform(-1, 1, shape)
    bend = rng.choice([-1, 1], shape) / rng.uniform(900, 5000, shape) / 2  # 1 / (2 R)
    angle = phi + np.arcsin(bend * RADII)
    arc = np.arcsin(bend * RADII) / bend
    z = rng.normal(0, 5, shape) + slope * arc
    exact = np.stack([RADII * np.cos(angle), RADII * np.sin(angle), z], axis=-1)
    position = (exact + rng.normal(0, 0.02, exact.shape)).reshape(-1, 3)
    layer = np.tile(np.arange(8), n_particles)
    module = np.floor((angle.ravel() % (2 * np.pi)) / (2 * np.pi) * MODULES)
    hit = np.arange(8 * n_particles).reshape(n_particles, 8)
    true = np.stack([hit[:, :-1].ravel(), hit[:, 1:].ravel()])
    other = rng.permutation(n_particles)[hit[:, 1:] // 8] * 8 + hit[:, 1:] % 8
    edges = np.concatenate([true, [hit[:, :-1].ravel(), other.ravel()]], axis=1)
    scores = np.concatenate([rng.beta(5, 1, true.shape[1]), rng.beta(1, 2, true.shape[1])])
    modules = np.stack([np.full_like(layer, 8), layer, module], axis=1).astype(np.int64)
    graph = ScoredGraph(edges, scores.astype(np.float32), position, modules)
    return graph, hit.ravel() // 8 + 1


def quality_of(feature: str, factor: float, constant: float, with_modules: bool = False) -> Quality:
    """Makes a quality whose logit is factor x feature + constant."""
    weights = [
        torch.zeros(shape)
        for inputs, outputs in pairwise(WIDTHS)
        for shape in ((outputs, inputs), (outputs,))
    ]
    # A pair of hidden values keeps both signs through the ReLUs.
    weights[0][0, FEATURES.index(feature)], weights[0][1, FEATURES.index(feature)] = 1, -1
    weights[2][0, 0] = weights[2][1, 1] = 1
    weights[4][0, 0], weights[4][0, 1] = factor, -factor
    weights[5][0] = constant
    return Quality(
        with_modules, torch.zeros(len(FEATURES)), torch.ones(len(FEATURES)), tuple(weights)
    )
