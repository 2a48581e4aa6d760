"""Graphs handed to acorn: its own come back bit for bit, with scores on its own edges."""

import sys
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import true_edges
from bigtrk.formats.acorn.export_graphs import acorn_data, export_acorn_folder
from bigtrk.formats.acorn.import_graphs import import_acorn_folder, read_acorn
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.graphs import filter_folder
from bigtrk.pipeline.models import load_scorer
from tests.formats.acorn.events import columns, in_older_names, load, write
from tests.formats.acorn.folders import drawn_run, folder_of
from tests.hostile.reader import same
from tests.present import present

NAME = "event000000001"
MADE_ANEW = ("edge_dr", "dr", "batch", "ptr", "num_nodes")


@cache
def an_event() -> Event:
    return simulate_event(40, seed=5, event_id=7)


@cache
def a_graph() -> EventGraph:
    return build_graph(an_event(), WindowBuilder(builtin_windows()))


def by_slope(graph: EventGraph) -> Tensor:
    """Scores that tell edges apart, whatever their direction."""
    return torch.sigmoid(graph.edge_features[:, 0].abs().double() / 50 - 2)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("older", [False, True])
def test_acorns_graphs_come_back_bit_for_bit(older: bool, batch: bool, tmp_path: Path) -> None:
    content = in_older_names(columns(1)) if older else columns(1)
    content["mine"] = torch.randn(7, generator=torch.Generator().manual_seed(0))
    content["weights"] = torch.rand(150)
    content["scores"] = torch.rand(150).bfloat16()  # of Lightning's bf16-mixed
    content["loss"] = torch.tensor([0.5], dtype=torch.bfloat16)
    content["note"] = "kept"
    original = write(tmp_path / "stage" / "valset" / "event000000001.pyg.gz", content, batch)
    import_acorn_folder(tmp_path / "stage", tmp_path / "graphs")
    (path,) = export_acorn_folder(tmp_path / "graphs", tmp_path / "back")
    assert path == tmp_path / "back" / "valset" / "event000000001.pyg"
    found = load(path)
    assert found["num_nodes"] == 65
    expected = {name: one for name, one in content.items() if name not in MADE_ANEW}
    if batch:  # as a DataLoader leaves them; of the event's id it makes another list
        expected |= {name: [expected[name]] for name in ("config", "note")}
    assert same({name: found[name] for name in expected}, expected)
    assert "edge_dr" not in found, "acorn computes it"
    # Importing it once more gives the same graph.
    again = read_acorn(path, "event000000001")[0]
    assert same(again, read_acorn(original, "event000000001")[0])


def test_what_lightning_leaves_in_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its dictionary comes back as a plain one; other objects are left out, with a warning."""
    for name in ("pytorch_lightning", "torch_sparse"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    settings = class_of("pytorch_lightning", "AttributeDict", dict)
    sparse = class_of("torch_sparse", "SparseTensor", object)
    content = columns(1)
    content["config"].append(settings(model="InteractionGNN", hidden=128))
    content["adjacency"] = sparse()
    import_acorn_folder(write(tmp_path / "event000000001.pyg", content), tmp_path / "graphs")
    assert "'adjacency' is left out, since its class is unknown" in capsys.readouterr().err
    (path,) = export_acorn_folder(tmp_path / "graphs", tmp_path / "back")
    found = load(path)
    assert found["config"] == [columns(1)["config"][0], {"model": "InteractionGNN", "hidden": 128}]
    assert "adjacency" not in found


def class_of(module: str, name: str, base: type) -> type:
    """A class in a module that is not installed."""
    made = type(name, (base,), {"__module__": module})
    setattr(sys.modules[module], name, made)
    return made


def test_scores_lie_on_acorns_own_edges(tmp_path: Path) -> None:
    content = columns(2)
    import_acorn_folder(write(tmp_path / "event000000002.pyg", content), tmp_path / "graphs")
    (path,) = export_acorn_folder(tmp_path / "graphs", tmp_path / "scored", by_slope)
    found = load(path)
    assert torch.equal(found["edge_index"], content["edge_index"]), "order and directions"
    r = content["hit_r"].numpy()
    a, b = content["edge_index"].numpy()
    expected = 1 / (1 + np.exp(2 - np.abs(r[a] - r[b]) / 50))
    assert found["edge_scores"].dtype is torch.float32
    np.testing.assert_allclose(found["edge_scores"].numpy(), expected, rtol=1e-5)
    assert torch.equal(found["scores"], found["edge_scores"])
    assert found["event_id"] == ["000000002"], "its track building names files by the first"
    assert isinstance(found["config"], list)
    assert found["time_taken"] >= 0
    # Nothing but tensors and plain values is in the file.
    with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        assert same(torch.load(path, weights_only=True).to_dict(), found)


def test_our_graphs_for_acorn(tmp_path: Path) -> None:
    """Truth is that of the event, also of edges that are not in the graph."""
    graph, event = a_graph(), an_event()
    (path,) = export_acorn_folder(folder_of(tmp_path / "graphs", graph), tmp_path / "out")
    found = load(path)
    assert path.name == "event000000007.pyg"
    assert found["event_id"] == "000000007", "a text, as its edge classifier takes it"
    for axis in "xyz":
        expected = event.hits[axis].astype(np.float64)
        np.testing.assert_allclose(found[f"hit_{axis}"], expected, rtol=1e-5, atol=1e-3)
    true = {tuple(pair) for pair in true_edges(event).T.tolist()}
    ends = found["track_edges"].T.tolist()
    assert {tuple(pair) for pair in ends} == true
    assert len(ends) == len(true)
    edges = [tuple(pair) for pair in found["edge_index"].T.tolist()]
    places = [edges.index(tuple(pair)) if tuple(pair) in edges else -1 for pair in ends]
    assert found["track_to_edge_map"].tolist() == places
    assert -1 in places
    assert sorted(one for one in places if one >= 0) == found["edge_y"].nonzero()[:, 0].tolist()
    table = present(event.particles)
    listed = table["particle_id"].tolist()
    momenta = np.hypot(table["px"], table["py"]).tolist()
    for one, pt in zip(
        found["track_particle_id"].tolist(), found["track_particle_pt"].tolist(), strict=True
    ):
        assert pt == pytest.approx(momenta[listed.index(one)], rel=1e-6)


def test_without_modules_true_edges_are_those_of_the_graph() -> None:
    graph = replace(a_graph(), modules=None)
    data = acorn_data(graph)
    assert graph.y is not None
    assert torch.equal(data["track_edges"], graph.edge_index[:, graph.y])
    assert torch.equal(data["track_to_edge_map"], graph.y.nonzero()[:, 0])
    none: dict[str, Any] = {
        "edge_index": torch.empty(2, 0, dtype=torch.int64),
        "edge_features": torch.empty(0, 6),
    }
    bare = acorn_data(replace(a_graph(), **none, y=torch.empty(0, dtype=torch.bool)))
    assert (bare["track_to_edge_map"] == -1).all()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"y": None}, "event000000007: has no y; acorn's stages need ids of hits .* and truth"),
        ({"particles": None}, "event000000007: has no particles; acorn"),
        ({"hit_id": None}, "event000000007: has no hit_id; acorn"),
        ({"name": "event7_g000"}, "event7_g000: must be named 'event' and a number of at most"),
        ({"node_feature_names": ("a", "phi", "z", "eta")}, "has no node feature 'r'"),
    ],
)
def test_what_acorn_cannot_be_given(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    """Nothing is written, neither of the events before the bad one."""
    first = replace(a_graph(), name="event000000001")
    bad = replace(a_graph(), **({"name": "event000000007"} | change))
    if "node_feature_names" in change:
        bad = replace(bad, node_features=bad.node_features[:, :4])
    graphs = folder_of(tmp_path / "graphs", first, bad)
    with pytest.raises(InputError, match=complaint):
        export_acorn_folder(graphs, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graphs"]


def always(scores: Tensor, _: EventGraph) -> Tensor:
    return scores


def test_bad_scores_are_named_and_nothing_is_overwritten(tmp_path: Path) -> None:
    graphs = folder_of(tmp_path / "graphs", a_graph())
    for scores in (torch.ones(a_graph().n_edges - 1), torch.full((a_graph().n_edges,), torch.nan)):
        with pytest.raises(InputError, match=r"7: the model's scores \(shape \[\d+\]\) are not"):
            export_acorn_folder(graphs, tmp_path / "out", partial(always, scores))
    assert not (tmp_path / "out").exists()
    (tmp_path / "out" / "trainset").mkdir(parents=True)
    with pytest.raises(InputError, match="out: exists already; remove it, or name a new folder"):
        export_acorn_folder(graphs, tmp_path / "out")


def test_a_folder_of_a_graph_that_leads_elsewhere(tmp_path: Path) -> None:
    said = r"manifest\.json: acorn_folder of event\d+ is not a sub-folder; import this graph again"
    for place in ("/tmp", "../..", "a\x1b"):
        graphs = tmp_path / f"graphs{len(place)}"
        folder_of(graphs, a_graph(), acorn_folder=place)
        with pytest.raises(InputError, match=said):
            export_acorn_folder(graphs, tmp_path / "out")


def test_graphs_that_were_thinned_here_go_back_with_acorns_columns(tmp_path: Path) -> None:
    content = columns(1, "AthenaRootReader")
    content |= {"edge_mine": torch.arange(150), "mine": torch.rand(150), "note": "kept"}
    write(tmp_path / "stage" / "valset" / "event000000001.pyg", content)
    import_acorn_folder(tmp_path / "stage", tmp_path / "graphs")
    scorer = load_scorer(drawn_run(tmp_path / "run"))
    scores = scorer(GraphFolder(tmp_path / "graphs").read(NAME))
    cut = float(scores.median())
    filter_folder(tmp_path / "run", tmp_path / "graphs", tmp_path / "thin", cut, None)
    (path,) = export_acorn_folder(tmp_path / "thin", tmp_path / "back")
    assert path == tmp_path / "back" / "valset" / "event000000001.pyg"
    found, kept = load(path), scores >= cut
    assert 60 < int(kept.sum()) < 90
    for name in ("edge_index", "edge_y", "edge_mine"):
        assert torch.equal(found[name], content[name][..., kept]), name
    for name in ("hit_region", "track_edges", "track_particle_pt"):
        assert torch.equal(found[name], content[name]), f"{name}: pT is acorn's, in MeV"
    assert (found["config"], found["note"]) == (content["config"], "kept")
    assert "mine" not in found, "nothing tells that it is of edges"
    filter_folder(tmp_path / "run", tmp_path / "thin", tmp_path / "none", 1.0, None)
    (bare,) = export_acorn_folder(tmp_path / "none", tmp_path / "bare")
    assert load(bare)["edge_index"].shape == (2, 0)
    assert load(bare)["track_to_edge_map"].tolist() == [-1] * 45
    pairs = found["edge_index"].T.tolist()
    for pair, edge in zip(
        content["track_edges"].T.tolist(), found["truth_map"].tolist(), strict=True
    ):
        assert edge == (pairs.index(pair) if pair in pairs else -1)
