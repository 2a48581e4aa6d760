"""A run's record describes the graphs that it trains on."""

from pathlib import Path
from typing import Any

from bigtrk.graphs.storage.event_folder import write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.records.run import DataRecord
from bigtrk.training.data.event_source import Events, data_record, split_validation
from tests.distributed.graphs import random_graph

BUILT = {"made_from": {"from": "trackml", "source": "ab"}}
FILTERED = {
    "made_from": {"from": "graphs", "graphs": {"from": "graphs", "graphs": {"from": "acorn"}}}
}


def recorded(folder: Path, records: list[dict[str, Any]]) -> DataRecord:
    """Makes the record of graphs with these records, the last of which is held back."""
    names = []
    for seed, record in enumerate(records):
        graph = random_graph(seed, 10 + seed, 20)
        write_graph(folder, graph, record)
        names.append(graph.name)
    write_manifest(folder, "graphs", {}, names)
    return data_record(Events(*split_validation([folder], 1)))


def test_events_trained_on_are_counted_and_their_sources_named(tmp_path: Path) -> None:
    shares = {"edge_efficiency": 0.5, "target_efficiency": 1.0}
    others = {"edge_efficiency": 0.75, "target_efficiency": 0.5}
    found = recorded(
        tmp_path, [{**BUILT, **shares}, {**FILTERED, **others}, {"edge_efficiency": 0}]
    )
    assert (found.train_events, found.validation_events) == (2, 1)
    assert (found.nodes, found.edges) == (10 + 11, 40)
    assert found.sources == ("acorn", "trackml")
    assert (found.edge_efficiency, found.target_efficiency) == (0.625, 0.75)
    for share in (None, "1", 7):
        records: list[dict[str, Any]] = [{"edge_efficiency": 0.5}, {"edge_efficiency": share}, {}]
        found = recorded(tmp_path / str(share), records)
        assert (found.edge_efficiency, found.sources) == (None, ())
