"""HEPTrkX npz graphs: real ones against plain numpy, bad ones named."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bigtrk.errors import InputError
from bigtrk.formats.heptrkx import import_heptrkx_folder, read_heptrkx
from bigtrk.graphs.builders.build_folder import show_folder
from bigtrk.graphs.features import normalised
from bigtrk.graphs.storage.event_folder import GraphFolder, file_of

Arrays = dict[str, Any]
# Edges 0: 0 -> 1, 1: 1 -> 2, 2: 0 -> 2, 3: 0 -> 2 again; the sparse entries in any order.
GOOD: Arrays = {
    "X": np.array([[0.032, 0.99, 0.1], [0.072, -0.99, 0.2], [1.0, -0.5, -1.0]], dtype=np.float32),
    "y": np.array([1, 0, 1, 0], dtype=np.float32),
    "Ri_rows": np.array([2, 1, 2, 2]),
    "Ri_cols": np.array([1, 0, 3, 2]),
    "Ro_rows": np.array([0, 1, 0, 0]),
    "Ro_cols": np.array([0, 1, 2, 3]),
}


def save(path: Path, arrays: Arrays) -> Path:
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)
    return path


def test_a_real_graph_against_numpy(testdata: Path) -> None:
    path = testdata / "data" / "heptrkx_graphs" / "event000001000_g000.npz"
    graph = read_heptrkx(path)
    with np.load(path) as raw:
        arrays = {key: raw[key] for key in raw.files}
    incoming = dict(zip(arrays["Ri_cols"].tolist(), arrays["Ri_rows"].tolist(), strict=True))
    outgoing = dict(zip(arrays["Ro_cols"].tolist(), arrays["Ro_rows"].tolist(), strict=True))
    expected = sorted((incoming[e], outgoing[e], y == 1) for e, y in enumerate(arrays["y"]))
    source, destination = graph.edge_index.tolist()
    assert graph.y is not None
    assert list(zip(destination, source, graph.y.tolist(), strict=True)) == expected
    units = {"r": 1000.0, "phi": math.pi, "z": 1000.0}
    chosen = normalised(graph.node_features, graph.node_feature_names, units, tuple(units))
    np.testing.assert_allclose(chosen.numpy(), arrays["X"], rtol=1e-6, atol=1e-7)
    assert (graph.edge_features[:, 0] > 0).all(), "from the inner to the outer hit"


def test_imports_a_folder_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "npz", tmp_path / "graphs"
    names = ["event000001000_g000", "event000001001_g000"]
    for name in names:
        save(source / f"{name}.npz", GOOD)
    manifest = import_heptrkx_folder(source, out)
    folder = GraphFolder(out)
    assert folder.events == names
    assert folder.record(names[0])["purity"] == 0.5
    first = file_of(out, names[0]).stat().st_mtime_ns
    save(source / f"{names[1]}.npz", GOOD | {"y": np.ones(4, dtype=np.float32)})
    with pytest.raises(InputError, match=r"was made from another event .* remove the file"):
        import_heptrkx_folder(source, out)
    file_of(out, names[1]).unlink()
    import_heptrkx_folder(source, out)
    assert file_of(out, names[0]).stat().st_mtime_ns == first, "unchanged: kept"
    assert GraphFolder(out).record(names[1])["purity"] == 1.0
    show_folder(manifest, Console())
    assert "50.00%" in capsys.readouterr().out


def test_sections_in_phi(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their phi has a unit of its own, and their number in the name tells of them."""
    source = tmp_path / "npz"
    for name in ("event000001000_g000", "event000001000_g001"):
        save(source / f"{name}.npz", GOOD | {"X": np.array([[0.1, 0.9, 0.0]] * 2 + [[1, 0.5, 1]])})
    with pytest.raises(InputError, match=r"g001\.npz: holds a section of an event.*--phi-sections"):
        import_heptrkx_folder(source, tmp_path / "graphs")
    save(tmp_path / "quarters" / "event000001000_s3.npz", GOOD)
    with pytest.raises(InputError, match=r"s3\.npz: holds a section of an event.*--phi-sections"):
        import_heptrkx_folder(tmp_path / "quarters", tmp_path / "graphs")
    manifest = import_heptrkx_folder(source, tmp_path / "graphs", 8)
    assert manifest["parameters"]["phi_sections"] == 8
    graph = GraphFolder(tmp_path / "graphs").read("event000001000_g001")
    assert graph.node_features[:, 1].tolist() == pytest.approx(
        [0.9 * math.pi / 8, 0.9 * math.pi / 8, 0.5 * math.pi / 8], rel=1e-6
    )
    assert graph.edge_features[1, 1].item() == pytest.approx(-0.4 * math.pi / 8, rel=1e-5)
    capsys.readouterr()
    import_heptrkx_folder(source / "event000001000_g000.npz", tmp_path / "one")
    assert "taken for whole events, with phi in units of pi" in capsys.readouterr().err


@pytest.mark.parametrize("whole", [True, False])
def test_edges_tell_of_a_section(
    whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigtrk.console._warned", set())
    phi = np.linspace(-1, 1, 400, endpoint=False)
    edges = np.arange(400 if whole else 380)
    arrays = {
        "X": np.stack([np.full(400, 0.1), phi, phi], axis=1),
        "y": np.ones(len(edges)),
        "Ri_rows": (edges + 20) % 400,
        "Ri_cols": edges,
        "Ro_rows": edges,
        "Ro_cols": edges,
    }
    read_heptrkx(save(tmp_path / "event000001000_g000.npz", arrays))
    assert ("if it is a section in phi" in capsys.readouterr().err) is not whole


def test_files_of_ids_beside_graphs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no graphs; they name the hits if they fit."""
    monkeypatch.setattr("bigtrk.console._warned", set())
    source = tmp_path / "npz"
    for name in ("a10", "a2"):
        save(source / f"{name}.npz", GOOD)
    save(source / "a10_ID.npz", {"ID": np.array([7, 5, 9])})
    save(source / "a2_pid.npz", {"pid": np.arange(3)})
    import_heptrkx_folder(source, tmp_path / "graphs")
    graphs = GraphFolder(tmp_path / "graphs")
    assert graphs.events == ["a2", "a10"]
    hit_id = graphs.read("a10").hit_id
    assert hit_id is not None
    assert hit_id.tolist() == [7, 5, 9]
    save(source / "a2_ID.npz", {"ID": np.array([7, 7, 9])})
    assert read_heptrkx(source / "a2.npz").hit_id is None
    said = capsys.readouterr().err
    assert "a2_ID.npz: array 'ID' must hold 3 different ids" in said
    assert "left out 1 file without a graph, such as a2_pid.npz" in said


def test_folders_without_graphs_or_with_bad_ones(tmp_path: Path) -> None:
    save(tmp_path / "npz" / "a.npz", {**GOOD, "X": GOOD["X"][:, :2]})
    for folder, told in (("npz", r"a\.npz"), ("nowhere", "nowhere: no such folder; name")):
        with pytest.raises(InputError, match=told):
            import_heptrkx_folder(tmp_path / folder, tmp_path / "graphs")
    assert not (tmp_path / "graphs").exists()


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("X", GOOD["X"][:, :2], r"'X' has shape \(3, 2\)"),
        ("X", GOOD["X"] * np.nan, "'X' holds NaN"),
        ("X", GOOD["X"] * [1, math.pi, 1], "'X' must hold phi / pi"),
        ("X", np.array([["a", "b", "c"]]), "'X' has dtype <U1, but must hold numbers"),
        ("y", np.array([1, 0, 2, 0]), "'y'.*0 and 1"),
        ("y", np.ones(3), r"'Ri_rows' has shape \(4,\)"),
        ("Ri_rows", np.array([2, 1, 2, 3]), "'Ri_rows' names nodes outside 0 to 2"),
        ("Ri_cols", np.array([0, 0, 3, 2]), "'Ri_cols' must name each edge 0 to 3 once"),
        ("Ro_rows", np.array([0.0, 1.0, 0.0, 0.0]), "'Ro_rows' has dtype float64"),
        ("y", np.array([1, 0, 1, None], dtype=object), "'y' cannot be read"),
        ("Ri_rows", None, "no array 'Ri_rows'"),
    ],
)
def test_bad_arrays_are_named(tmp_path: Path, key: str, value: Any, complaint: str) -> None:
    arrays = {name: array for name, array in {**GOOD, key: value}.items() if array is not None}
    path = save(tmp_path / "bad.npz", arrays)
    with pytest.raises(InputError, match=f"{path}.*{complaint}"):
        read_heptrkx(path)
