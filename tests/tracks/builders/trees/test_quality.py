"""Tests the training of track quality, and the file of a merge tree."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import SectionFile, write_sections
from bigtrk.tracks import merge_tree_training
from bigtrk.tracks.builders.candidates import are_good, find_candidates
from bigtrk.tracks.builders.hit_tree import grow
from bigtrk.tracks.builders.merge_tree import MergeTree, Quality, read_merge_tree, write_merge_tree
from bigtrk.tracks.merge_tree_training import known_event, train_quality
from tests.tracks.builders.events import helix_event, quality_of, scored


@pytest.fixture(scope="module")
def quality() -> Quality:
    return train_quality([known_event(*helix_event(seed)) for seed in range(6)])


def test_good_tracks_are_told_from_others(quality: Quality) -> None:
    graph, particle_id = helix_event(100)
    candidates = find_candidates(grow(graph), graph.position, 3)
    good = are_good(candidates.hits, particle_id)
    probability = quality(candidates.features)
    assert ((probability > 0.5) == good).mean() > 0.95
    assert probability.mean() == pytest.approx(good.mean(), abs=0.05)


def test_the_same_events_and_seed_give_the_same_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_tree_training, "STEPS", 20)

    def train(seed: int) -> Quality:
        torch.rand(3)  # what others draw does not matter
        return train_quality([known_event(*helix_event(0))], seed)

    one, same, other = train(0), train(0), train(1)
    for a, b in zip(one.weights, same.weights, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.weights[0], other.weights[0])


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(InputError, match="0 of 0 candidate tracks of 3 hits or more are good"):
        train_quality([])
    graph, particle_id = helix_event(0)
    with pytest.raises(InputError, match=r"0 of \d\d\d+ candidate tracks .* give more events"):
        train_quality([known_event(graph, np.zeros_like(particle_id))])
    without = known_event(replace(graph, modules=None), particle_id)
    with pytest.raises(InputError, match="only some events name the module of each hit"):
        train_quality([known_event(graph, particle_id), without])
    one = scored([(0, 1, 0.9), (1, 2, 0.9)], np.eye(3).tolist())
    with pytest.raises(InputError, match="1 of 1 candidate"):
        train_quality([known_event(one, np.ones(3, np.int64))])


def test_a_file_gives_back_what_was_written(quality: Quality, tmp_path: Path) -> None:
    path = tmp_path / "tracks" / "merge-tree.safetensors"
    write_merge_tree(path, MergeTree(quality, 0.35))
    read = read_merge_tree(path)
    assert (read.threshold, read.quality.with_modules) == (0.35, True)
    assert read.quality.second is not None
    graph, _ = helix_event(101)
    features = find_candidates(grow(graph), graph.position, 3).features
    np.testing.assert_array_equal(read.quality(features), quality(features))
    np.testing.assert_array_equal(read(graph, 3), MergeTree(quality, 0.35)(graph, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "merge-tree.safetensors"
    write_merge_tree(path, MergeTree(quality_of("hits", 1, 0), 0.5))
    return path


def assert_refused(path: Path, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        read_merge_tree(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "bigtrk model"}, "is no merge tree"),
        ({"version": 2}, "has version 2, but .* reads version 3; .* train the pipeline again"),
        ({"threshold": 1.5}, "threshold"),
        ({"features": ["hits"]}, "judges tracks by other features than this bigtrk; train the"),
    ],
)
def test_records_of_something_else(path: Path, change: dict[str, object], why: str) -> None:
    opened = SectionFile(path)
    write_sections(path, {"quality": opened.read("quality")}, opened.record | change)
    assert_refused(path, why)


def test_networks_of_another_shape(path: Path) -> None:
    opened = SectionFile(path)
    wrong = opened.read("quality") | {"weight_1": torch.zeros(8, 8)}
    write_sections(path, {"quality": wrong}, opened.record)
    assert_refused(path, "weight_1")
