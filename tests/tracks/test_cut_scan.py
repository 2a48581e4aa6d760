"""Tests tracks by several cuts at once, against each of them alone."""

import random
from dataclasses import replace
from math import pi

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.records.evaluation import TrackRecord
from bigtrk.tracks.evaluation import TrackOptions, score_tracks, scored_graph, summarise_tracks
from bigtrk.tracks.names import BuilderName
from tests.tracks.small_event import small_event

CUTS = (0.2, 0.55, 0.9)


def recorded(options: TrackOptions) -> TrackRecord:
    """Records two events of five particles, whose true edges score better than others."""
    events = []
    for seed in range(2):
        draw = random.Random(seed)
        hits = [1 + i % 5 for i in range(40)]
        pairs = sorted({(b, a) for a in range(40) for b in range(a + 1, 40) if draw.random() < 0.1})
        pairs = sorted({*pairs, *((a + 5, a) for a in range(35))})
        edges = [(a, b, b == a + 5) for b, a in pairs]
        scores = [draw.uniform(0.4, 1.0) if true else draw.uniform(0, 0.8) for *_, true in edges]
        event = small_event(hits, edges, dict.fromkeys(range(1, 6), 2.0))
        events.append(score_tracks(event, torch.tensor(scores, dtype=torch.float64), options))
    return summarise_tracks(events, options)


@pytest.mark.parametrize("builder", BuilderName)
def test_a_scan_gives_what_each_cut_gives_alone(builder: BuilderName) -> None:
    scan = recorded(TrackOptions(builder=builder, scan_cuts=CUTS)).scan
    assert [found.score_cut for found in scan] == list(CUTS)
    for found in scan:
        alone = recorded(TrackOptions(score_cut=found.score_cut, builder=builder))
        assert (alone.builder, alone.score_cut) == (builder.value, found.score_cut)
        (strict,) = (
            match for match in alone.matching if (match.style, match.mode) == ("ATLAS", "strict")
        )
        assert found.model_dump(exclude={"score_cut", "bins"}) == strict.model_dump(
            exclude={"bins"}
        )
    assert len({found.efficiency for found in scan}) > 1


def test_without_a_cut_the_builder_has_its_own_and_perfect_scores_their_own() -> None:
    walk = recorded(TrackOptions(builder=BuilderName.WALK))
    assert (walk.builder, walk.score_cut, walk.scan) == ("walk", 0.01, ())
    assert recorded(TrackOptions()).score_cut == 0.5
    for builder in BuilderName:
        perfect = recorded(TrackOptions(score_cut=1.0, builder=builder)).perfect
        assert perfect is not None
        assert [match.efficiency for match in perfect.matching] == [1.0] * len(perfect.matching)


def test_hits_are_where_their_features_say() -> None:
    event = small_event([1, 1], [(0, 1, True)], {1: 2.0})
    scores = torch.tensor([0.25], dtype=torch.float64)
    features = torch.tensor([[2.0, 0.0, 5.0, 0.0], [4.0, pi / 2, -6.0, 0.0]])
    graph = scored_graph(replace(event, node_features=features), scores)
    assert graph.position[0].tolist() == [2, 0, 5]
    assert graph.position[1].tolist() == pytest.approx([0, 4, -6], abs=1e-6)
    assert (graph.edge_index.tolist(), graph.scores.tolist()) == ([[0], [1]], [0.25])
    unknown = replace(event, node_feature_names=("r", "angle", "z", "eta"))
    with pytest.raises(InputError, match=r"^small: has no node feature 'phi', .* add them to"):
        scored_graph(unknown, scores)
