"""Tests which events of a folder are trained on and which are held back."""

from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.training.data.event_source import EventSource, split_validation
from tests.distributed.graphs import random_graph, write_graphs


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    write_graphs(tmp_path, [random_graph(seed, 10, 20) for seed in range(5)])
    return tmp_path


def names(sources: list[EventSource]) -> list[str]:
    return [source.name for source in sources]


def test_first_events_are_trained_on_and_last_ones_held_back(graphs: Path) -> None:
    every = names(split_validation([graphs], 0)[0])
    assert len(every) == 5
    for events, validation in ((1, 1), (2, 2), (3, 1)):
        train, held = split_validation([graphs], validation, events)
        assert names(train) == every[:events]
        assert names(held) == every[-validation:]
    assert len(split_validation([graphs], 1)[0]) == 4


def test_more_events_than_are_left_are_refused(graphs: Path) -> None:
    with pytest.raises(InputError, match=r"data.events=4: data\.train has only 3 events besides"):
        split_validation([graphs], 2, 4)


def test_two_events_of_one_name_are_refused_with_a_way_to_keep_both(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, edges in ((one, 20), (two, 21)):
        write_graphs(folder, [random_graph(0, 10, edges)], made_from={"source": str(edges)})
    words = "two events have this name, so build the graphs in '.*two' again .*--prefix b-'"
    with pytest.raises(InputError, match=words):
        split_validation([one, two], 0)
    with pytest.raises(InputError, match=f"data.validation: .*{words}"):
        split_validation([one], [two])
    with pytest.raises(InputError, match=r"also in data.train; name folders of other events"):
        split_validation([one], [one])


def test_features_that_graphs_lack_are_told_with_those_they_have(graphs: Path) -> None:
    (source, *_), _ = split_validation([graphs], 1)
    source.check(["cos_phi", "my.module:function"], ["dz"], with_pt=False)
    words = "event000000000 in .*has no node feature 'charge'; choose from r, phi, z, eta, cos_phi"
    with pytest.raises(InputError, match=words):
        source.check(["r", "charge"], ["dz"], with_pt=False)
    with pytest.raises(InputError, match="no edge feature 'r'; choose from dr, dphi"):
        source.check(["r"], ["r"], with_pt=False)


def test_positions_give_features_of_edges_that_graphs_lack(
    graphs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source, *_), _ = split_validation([graphs], 1)
    record = {**source.record, "edge_feature_names": ["length"]}
    monkeypatch.setattr(EventSource, "record", record)
    source.check(["r"], ["length", "dz"], with_pt=False)
    record.update(edge_feature_names=[], node_feature_names=["r"])
    source.check(["r"], [], with_pt=False)
    with pytest.raises(InputError, match=r"no edge feature 'dz'; set data\.edge_features=\[\]"):
        source.check(["r"], ["dz"], with_pt=False)
