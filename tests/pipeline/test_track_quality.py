"""Tests what stage 5 takes from one held-back event and from several."""

import numpy as np
import pytest
import torch

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import TrueEdgeBuilder, event_graph
from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.pipeline.training import train_merge_tree
from bigtrk.tracks import merge_tree_training
from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.evaluation import scored_graph


def scored_event(seed: int) -> tuple[EventGraph, ScoredGraph]:
    """Simulates an event, and scores true edges high and as many others low, except some."""
    event = simulate_event(100, seed)
    rng = np.random.default_rng(seed)
    true = TrueEdgeBuilder().true(event)
    other = np.sort(rng.integers(len(event.hits["hit_id"]), size=true.shape), axis=0)
    graph = event_graph(event, np.concatenate([true, other[:, other[0] < other[1]]], axis=1), true)
    whole = whole_sector(graph)
    assert whole.y is not None
    drawn = torch.from_numpy(rng.beta(4, 1, whole.n_edges))
    return graph, scored_graph(whole, torch.where(whole.y, drawn, 1 - drawn))


@pytest.fixture(autouse=True)
def _short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_tree_training, "STEPS", 100)


def test_of_two_events_the_rate_of_fakes_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    events = [scored_event(seed) for seed in (1, 2)]
    merge_tree, record = train_merge_tree(events, 0.05, seed=0)
    assert record.threshold == merge_tree.threshold
    assert record.fakes == 0.05
    within = [one for one in record.scan if (one.fake_rate or 0) <= 0.05]
    [chosen] = [one for one in within if one.threshold == record.threshold]
    assert chosen.efficiency == max(one.efficiency or 0 for one in within)
    printed = capsys.readouterr().out
    assert f"threshold {record.threshold:g} of the quality: finds" in printed
    assert "none leaves as few" not in printed


def test_one_event_alone_chooses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    merge_tree, record = train_merge_tree([scored_event(1)], 0.05, seed=0)
    assert (merge_tree.threshold, record.threshold, record.scan) == (0.5, 0.5, ())
    assert "one held-back event is too few to choose it" in capsys.readouterr().out
