"""Tests the choice of the threshold of track quality: by hand, and against the builder itself."""

from dataclasses import replace

import numpy as np
import pytest

from bigtrk.tracks import merge_tree_training
from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.hit_tree import Ids
from bigtrk.tracks.builders.merge_tree import MergeTree
from bigtrk.tracks.matching import Matching, Particles, TrackMetrics, match_tracks, pooled
from bigtrk.tracks.merge_tree_training import (
    THRESHOLDS,
    choose_threshold,
    cross_fitted_scan,
    known_event,
    train_quality,
)
from tests.tracks.builders.events import helix_event

STRICT = Matching("ATLAS", "strict", pt_min=1.0, hits_min=3)


def found(n_reconstructed: int, n_tracks: int, n_fakes: int) -> TrackMetrics:
    return TrackMetrics(1000, n_reconstructed, 0, n_tracks, n_tracks - n_fakes)


def test_most_particles_are_found_among_few_enough_fakes() -> None:
    scan = {
        0.2: found(950, 2000, 40),
        0.4: found(940, 2000, 30),  # 1.5 %
        0.6: found(930, 1900, 31),  # the rate of fakes need not fall steadily
        0.8: found(800, 1500, 1),
    }
    assert choose_threshold(scan, 0.015) == 0.4
    assert choose_threshold(scan, 0.0149) == 0.8
    assert choose_threshold(scan, 1) == 0.2
    # No threshold leaves so few fakes.
    scan = {0.2: found(900, 1000, 90), 0.5: found(800, 900, 72), 0.9: found(1, 10, 1)}
    assert choose_threshold(scan, 0.01) == 0.5


def blurred(graph: ScoredGraph, particle_id: Ids) -> tuple[ScoredGraph, Ids]:
    """Moves hits by some millimetres: their helices tell less, and thresholds choose more."""
    moved = np.random.default_rng(0).normal(0, 5, graph.position.shape)
    return replace(graph, position=graph.position + moved), particle_id


def test_events_are_judged_by_what_the_others_taught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every threshold's tracks are those of a merge tree that never saw their event."""
    monkeypatch.setattr(merge_tree_training, "STEPS", 30)
    graphs = [blurred(*helix_event(seed, 40)) for seed in range(3)]
    events = [(known_event(*one), particles_of(one[1])) for one in graphs]
    scan = cross_fitted_scan(events, seed=4)
    assert tuple(scan) == THRESHOLDS
    others = [[event for event, _ in events[:row] + events[row + 1 :]] for row in range(3)]
    qualities = [train_quality(known, seed=4) for known in others]
    for threshold in (THRESHOLDS[3], THRESHOLDS[20], THRESHOLDS[-1]):
        judged = [
            match_tracks(
                MergeTree(quality, threshold)(graph, 3), particle, particles_of(particle), STRICT
            ).metrics
            for quality, (graph, particle) in zip(qualities, graphs, strict=True)
        ]
        assert scan[threshold] == pooled(judged)
    numbers = [scan[threshold].n_tracks for threshold in (THRESHOLDS[0], THRESHOLDS[-1])]
    assert numbers[0] > numbers[1], "higher ones give fewer tracks"


def particles_of(particle_id: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Particles:
    """Lists the particles of hits; half of them are too soft to count."""
    ids, counts = np.unique(particle_id, return_counts=True)
    return Particles(ids, np.where(ids % 2, 0.5, 2.0), counts)
