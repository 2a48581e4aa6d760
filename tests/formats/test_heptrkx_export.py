"""HEPTrkX npz graphs out and in again, and against the real files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigtrk.events.simulation.production import simulate_folder
from bigtrk.formats.heptrkx import KEYS, import_heptrkx_folder, read_heptrkx, write_heptrkx
from bigtrk.graphs.builders.build_folder import build_folder
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.event_folder import GraphFolder
from tests.programs import Run, output_of

Arrays = dict[str, Any]


def loaded(path: Path) -> Arrays:
    with np.load(path) as raw:
        return {key: raw[key] for key in raw.files}


def labelled_edges(arrays: Arrays) -> list[tuple[int, int, float]]:
    """Lists (start, end, label) by following the sparse entries."""
    start = dict(zip(arrays["Ro_cols"].tolist(), arrays["Ro_rows"].tolist(), strict=True))
    end = dict(zip(arrays["Ri_cols"].tolist(), arrays["Ri_rows"].tolist(), strict=True))
    return sorted((start[e], end[e], y) for e, y in enumerate(arrays["y"].tolist()))


def same(one: EventGraph, other: EventGraph) -> bool:
    """Whether all that the layout knows is equal, bit for bit."""
    names = ("node_features", "edge_index", "edge_features", "y")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def test_real_files_come_back(testdata: Path, tmp_path: Path) -> None:
    """Ids of nodes, edges and labels exactly; X to a unit in the last place, the graph exactly."""
    files = sorted((testdata / "data" / "heptrkx_graphs").glob("*.npz"))[:5]
    assert files
    for file in files:
        graph = read_heptrkx(file)
        real, made = loaded(file), loaded(write_heptrkx(graph, tmp_path))
        assert list(made) == list(KEYS)
        assert {key: array.dtype for key, array in made.items()} == {
            key: real[key].dtype for key in KEYS
        }
        assert labelled_edges(made) == labelled_edges(real)
        np.testing.assert_array_max_ulp(made["X"], real["X"], maxulp=1)
        assert same(read_heptrkx(tmp_path / file.name), graph)


@pytest.mark.usefixtures("workdir")
def test_graphs_built_from_events(run_program: Run) -> None:
    simulate_folder(Path("events"), range(2), 40, 0, None)
    build_folder(Path("events"), Path("graphs"))
    command = ["bigtrk", "export", "heptrkx", "graphs", "npz"]
    assert output_of(run_program(command)) == "2 files in npz\n"
    import_heptrkx_folder(Path("npz"), Path("again"))
    before, after = GraphFolder(Path("graphs")), GraphFolder(Path("again"))
    assert after.events == before.events
    for name in before.events:
        graph, arrays = before.read(name), loaded(Path(f"npz/{name}.npz"))
        assert graph.y is not None
        edges = sorted(zip(*graph.edge_index.tolist(), graph.y.double().tolist(), strict=True))
        assert labelled_edges(arrays) == edges
        assert len(edges) > 20
        again = after.read(name).node_features
        for place, column in enumerate(("r", "phi", "z")):
            known = graph.node_features[:, graph.node_feature_names.index(column)].numpy()
            np.testing.assert_array_max_ulp(again[:, place].numpy(), known, maxulp=1)


def test_what_a_graph_lacks_is_named(tmp_path: Path) -> None:
    simulate_folder(tmp_path / "events", range(1), 20, 0, None)
    build_folder(tmp_path / "events", tmp_path / "graphs")
    graph = GraphFolder(tmp_path / "graphs").read("event000000000")
    names = tuple("angle" if name == "phi" else name for name in graph.node_feature_names)
    for spoiled, named in (
        (replace(graph, y=None), "has no labels; build the graph from events with"),
        (replace(graph, node_feature_names=names), "has no node feature 'phi', but HEPTrkX needs"),
    ):
        with pytest.raises(ValueError, match=f"event000000000: {named}"):
            write_heptrkx(spoiled, tmp_path / "npz")
    assert not (tmp_path / "npz").exists()
