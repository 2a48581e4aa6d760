"""The TrackML score against the challenge's own software."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bigtrk.tracks.evaluation import TrackOptions, score_tracks
from bigtrk.tracks.matching import trackml_score
from tests.tracks.small_event import small_event
from tests.tracks.subevent import read_subevent


def test_every_golden_score(testdata: Path) -> None:
    event = read_subevent(testdata)
    golden = json.loads((testdata / "golden/trackml_score/scores.json").read_text())["scores"]
    assert golden.keys() == event.submissions.keys()
    for name, expected in golden.items():
        score = trackml_score(event.submissions[name], event.particle_id, event.weight)
        assert score == pytest.approx(expected, rel=1e-12, abs=1e-15), name
    assert trackml_score(event.particle_id, event.particle_id, event.weight) == pytest.approx(1.0)
    in_no_track = np.full_like(event.particle_id, -1)
    assert trackml_score(in_no_track, event.particle_id, event.weight) == 0.0


def test_more_than_half_of_track_and_of_particle() -> None:
    weight = np.array([1.0, 2.0, 4.0, 8.0])
    particle = np.array([7, 7, 7, 8])
    assert trackml_score(np.array([0, 0, 1, -1]), particle, weight) == 3 / 15
    assert trackml_score(np.array([0, 1, 2, 0]), particle, weight) == 0.0
    assert trackml_score(np.array([0, 0, 0, 0]), particle, weight) == 7 / 15
    assert trackml_score(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 8]), weight) == 8 / 15


def test_an_event_without_weighted_hits_is_judged_without_a_score() -> None:
    chain = small_event([7, 7, 7], [(0, 1, True), (1, 2, True)], {7: 2.0})
    unweighted = replace(chain, hit_weight=torch.zeros(3, dtype=torch.float64))
    judged = score_tracks(unweighted, torch.ones(2), TrackOptions()).model
    assert judged.trackml_score is None
    assert all(metrics.efficiency == 1 for metrics in judged.metrics)
