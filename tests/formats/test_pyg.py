"""Files of PyTorch Geometric's Data: imported as they are, run nothing, and bad ones are named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData

import bigtrk
from bigtrk.errors import InputError
from bigtrk.formats.pyg import import_pyg_folder, read_pyg
from bigtrk.graphs.features import EDGE_FEATURES
from bigtrk.graphs.storage.event_folder import GraphFolder, file_of
from bigtrk.training.data.event_source import open_events
from bigtrk.training.model_files import load_model
from tests.graphs.test_pyg_data import bare, random_data
from tests.hostile.reader import same
from tests.programs import Run, refusal_of


def save(path: Path, content: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    torch.save(content, path)
    return path


def test_random_data_into_a_folder_and_back(tmp_path: Path) -> None:
    known = {}
    for seed in range(20):
        data = random_data(seed)
        known[data.name] = data.to_dict()
        save(tmp_path / "data" / f"{data.name}.pt", data)
    import_pyg_folder(tmp_path / "data", tmp_path / "graphs")
    folder = GraphFolder(tmp_path / "graphs")
    assert folder.events == sorted(known)
    for name in folder.events:
        assert same(folder.read(name).to_pyg().to_dict(), known[name])


def test_the_command(tmp_path: Path, run_program: Run) -> None:
    """Names of columns are options; what is unchanged is kept; without y nothing is trained."""
    source, out = tmp_path / "data", tmp_path / "graphs"
    y = torch.tensor([True, False, False, True])
    save(source / "a.pt", bare(y=y, edge_attr=torch.ones(4, 1)))
    save(source / "b.pyg", bare(edge_attr=torch.ones(4, 1)))
    command = ["bigtrk", "build", "--from", "pyg", str(source), str(out)]
    named = [*command, "--node-features", "r,phi", "--edge-features", "dr"]
    assert run_program(named)[0] == 0
    graphs = GraphFolder(out)
    assert graphs.read("a").node_feature_names == ("r", "phi")
    assert graphs.read("b").edge_feature_names == ("dr",)
    assert (graphs.record("a")["purity"], graphs.record("b")["purity"]) == (0.5, None)
    first = file_of(out, "a").stat().st_mtime_ns
    assert run_program(named)[0] == 0
    assert file_of(out, "a").stat().st_mtime_ns == first
    labelled, unlabelled = open_events([out])
    labelled.check(["r"], ["dr"], with_pt=False)
    with pytest.raises(InputError, match="training needs truth"):
        unlabelled.check(["r"], ["dr"], with_pt=False)
    assert run_program(command)[0] == 0
    assert GraphFolder(out).read("a").node_feature_names == ("x0", "x1"), "other names: made again"
    err = refusal_of(run_program([*named, "--learn-windows"]))
    assert "more than one way to make graphs" in err
    err = refusal_of(run_program(["bigtrk", "build", *named[4:]]))
    assert "--edge-features needs --from pyg; choose that, or leave out --edge-features" in err


@pytest.mark.parametrize("names", ["r,phi,z", "a,b,c"])
def test_graphs_without_edge_attr_are_trained(
    names: str,
    workdir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    run_program: Run,
) -> None:
    """Features of edges are computed from positions; else there are none, with a warning."""
    monkeypatch.setattr("bigtrk.console._warned", set())
    for event in range(2):
        data = bare(x=100 * torch.rand(3, 3), y=torch.tensor([1, 0, 0, 1]))
        save(workdir / "data" / f"event{event}.pt", data)
    command = ["bigtrk", "build", "--from", "pyg", "data", "graphs", "--node-features", names]
    assert run_program(command)[0] == 0
    small = ["model.hidden=8", "model.layers=2", "training.epochs=1"]
    run = bigtrk.train(bigtrk.configure(f"data.node_features=[{names}]", *small))
    told = "have no edge features" in capsys.readouterr().err
    read = load_model(run).configuration.data.edge_features
    assert (read, told) == (([*EDGE_FEATURES], False) if names == "r,phi,z" else ([], True))


def test_values_of_numpy_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigtrk.console._warned", set())
    values = {"event_id": np.int64(3), "beam": np.arange(3.0), "tags": np.array(["a", None])}
    graph = read_pyg(save(tmp_path / "a.pt", bare(**values)))
    assert graph.n_edges == 4
    assert "a.pt: left out event_id, beam, tags, which" in capsys.readouterr().err
    with pytest.raises(
        InputError, match=r"c\.pt: x must be a plain dense tensor \(got object of another class\)"
    ):
        read_pyg(save(tmp_path / "c.pt", bare(x=np.ones((3, 2)))))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (HeteroData(), "holds no Data"),
        (Batch.from_data_list([bare(), bare()]), "holds several graphs; save each in a file"),
        ([bare(), bare()], "holds no Data object of PyG 2.8; save each graph by itself"),
        ({"x": torch.ones(2)}, "holds no Data"),
        (bare(y=torch.zeros(1).expand(2**40)), "is damaged or .*a tensor is larger than its"),
        (Data(x=torch.ones(3, 2)), "has no edge_index"),
        (bare(edge_index=torch.eye(3).to_sparse()), "edge_index must be a plain dense tensor"),
        (bare(y=torch.zeros(3)), "y labels the 3 nodes"),
    ],
)
def test_what_is_no_graph(tmp_path: Path, content: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=rf"bad\.pt: {complaint}"):
        read_pyg(save(tmp_path / "bad.pt", content))


def test_folders_without_or_with_too_many(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: no such folder; name the folder of PyG's"):
        import_pyg_folder(tmp_path / "nowhere", tmp_path / "graphs")
    for name in ("a.pt", "a.pyg"):
        save(tmp_path / "data" / name, bare())
    with pytest.raises(InputError, match=r"a\.pyg: makes an event of the same name as .*a\.pt"):
        import_pyg_folder(tmp_path / "data", tmp_path / "graphs")
    assert not (tmp_path / "graphs").exists()


def test_the_folder_of_a_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigtrk.console._warned", set())
    for name in ("data_10", "data_2"):
        save(tmp_path / "processed" / f"{name}.pt", bare())
    for name in ("pre_filter", "pre_transform"):
        save(tmp_path / "processed" / f"{name}.pt", "None")
    import_pyg_folder(tmp_path / "processed", tmp_path / "graphs")
    assert GraphFolder(tmp_path / "graphs").events == ["data_2", "data_10"]
    assert [source.name for source in open_events([tmp_path / "graphs"])] == ["data_2", "data_10"]
    assert "left out pre_filter.pt, pre_transform.pt, which hold no" in capsys.readouterr().err
