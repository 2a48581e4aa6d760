"""acorn's graphs as ours: orientation, truth, units and ids, and refusals by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.formats.acorn.import_graphs import import_acorn_folder, read_acorn
from bigtrk.formats.registry import PtUnit
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.event_folder import GraphFolder, file_of
from bigtrk.pipeline.graphs import filter_folder
from bigtrk.training.data.event_source import open_events
from tests.formats.acorn.events import IDS, LAYERS, columns, in_older_names, write
from tests.formats.acorn.folders import drawn_run
from tests.present import present
from tests.programs import Run, output_of


def read(path: Path, content: dict[str, Any], **options: Any) -> EventGraph:
    return read_acorn(write(path, content, **options), path.name.split(".")[0])[0]


def test_an_event_against_plain_loops(tmp_path: Path) -> None:
    content = columns(seed=3)
    graph = read(tmp_path / "event000000003.pyg", content)
    r, z = content["hit_r"].tolist(), content["hit_z"].tolist()
    phi = content["hit_phi"].tolist()
    turned = 0
    for edge, (a, b) in enumerate(content["edge_index"].T.tolist()):
        inner, outer = (a, b) if r[a] ** 2 + z[a] ** 2 <= r[b] ** 2 + z[b] ** 2 else (b, a)
        turned += inner != a
        assert graph.edge_index[:, edge].tolist() == [inner, outer], "in acorn's order"
        dphi = (phi[outer] - phi[inner] + np.pi) % (2 * np.pi) - np.pi
        expected = [r[outer] - r[inner], dphi, z[outer] - z[inner]]
        assert graph.edge_features[edge, :3].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert 20 < turned < 130, "both kinds are tested"
    particle = [0] * len(r)
    for (a, b), one in zip(
        content["track_edges"].T.tolist(), content["track_particle_id"].tolist(), strict=True
    ):
        particle[a] = particle[b] = one
    assert present(graph.particle_id).tolist() == particle
    assert present(graph.hit_id).tolist() == list(range(1, len(r) + 1)), "TrackML counts from 1"
    assert torch.equal(present(graph.y), content["edge_y"])
    names = ("r", "phi", "z", "eta", "cluster_r_1")
    assert graph.node_feature_names == names
    for column, name in enumerate(names[:4]):
        assert torch.equal(graph.node_features[:, column], content[f"hit_{name}"].float())


@pytest.mark.parametrize(("dtype", "older"), [(torch.int64, False), (torch.float32, True)])
def test_hits_in_strip_end_caps_are_their_own_clusters(
    dtype: torch.dtype, older: bool, tmp_path: Path
) -> None:
    """They are in acorn's model, whatever the file says there; other regions keep the file's."""
    names = [f"cluster_{name}_{side}" for side in (1, 2) for name in ("r", "phi", "z", "eta")]
    content = {**columns(), "hit_region": columns()["hit_region"].to(dtype)}
    region = content["hit_region"].tolist()
    for name in names:
        cluster = content[f"hit_{name.split('_')[1]}"] + 0.01
        content[f"hit_{name}"] = cluster.where(content["hit_region"] != 6, torch.nan)
    saved = in_older_names(content) if older else content
    if older:
        saved = {name.replace("hit_cluster", "cluster"): one for name, one in saved.items()}
    graph = read(tmp_path / "event000000001.pyg", saved)
    of_graph = dict(zip(graph.node_feature_names, graph.node_features.T.tolist(), strict=True))
    for name, row in ((name, row) for name in names for row in range(len(region))):
        own = region[row] in (2, 6)
        written = content[f"hit_{name.split('_')[1] if own else name}"].float().tolist()
        assert of_graph[name][row] == written[row], f"{name} of hit {row}, region {region[row]}"


@pytest.mark.parametrize("reader", ["TrackMLReader", "AthenaRootReader", "ActsReader"])
def test_particles_in_the_units_of_their_reader(reader: str, tmp_path: Path) -> None:
    graph = read(tmp_path / "event000000001.pyg", columns(reader=reader))
    table = present(graph.particles)
    assert table.particle_id.tolist() == IDS.tolist()
    assert table.pt.tolist() == [0.5 + 0.25 * one for one in range(len(IDS))]
    assert table.nhits.tolist() == [LAYERS] * len(IDS)
    assert int(present(graph.hit_id)[0]) == (reader == "TrackMLReader")


def test_a_unit_that_the_file_does_not_say(tmp_path: Path) -> None:
    path = write(tmp_path / "event1.pyg", columns(reader="MyReader"))
    with pytest.raises(InputError, match=r"event1\.pyg: config.*model.*--pt-unit mev or gev"):
        read_acorn(path, "event1")
    units: dict[PtUnit, float] = {"gev": 0.5, "mev": 0.0005}
    for unit, of_first in units.items():
        table = present(read_acorn(path, "event1", unit)[0].particles)
        assert float(table.pt[0]) == pytest.approx(of_first)


def test_a_stage_with_its_sub_folders(tmp_path: Path, run_program: Run) -> None:
    stage, out = tmp_path / "stage", tmp_path / "graphs"
    write(stage / "trainset" / "event000000001.pyg", columns(1))
    write(stage / "trainset" / "mine_event000000002-graph.pyg", columns(2))
    write(stage / "valset" / "event000000003.pyg.gz", columns(3), batch=True)
    command = ["bigtrk", "build", "--from", "acorn", str(stage), str(out)]
    output_of(run_program(command))
    graphs = GraphFolder(out)
    assert graphs.events == ["event000000001", "event000000002", "event000000003"]
    first = file_of(out, "event000000001").stat().st_mtime_ns
    assert run_program(command)[0] == 0
    assert file_of(out, "event000000001").stat().st_mtime_ns == first, "unchanged: kept"
    open_events([out])[0].check(["r", "cluster_r_1"], ["dr"], with_pt=True)
    assert run_program([*command, "--pt-unit", "gev"])[0] == 0
    status, _, error = run_program(["bigtrk", "build", *command[4:], "--pt-unit", "gev"])
    assert (status, "--pt-unit needs --from acorn; choose that, or leave out" in error) == (2, True)


def test_how_good_a_graph_is(tmp_path: Path) -> None:
    """Counted by acorn's true edges, of which the event's fourth is not built."""
    stage = write(tmp_path / "event000000001.pyg", columns())
    record = import_acorn_folder(stage, tmp_path / "graphs")["events"]["event000000001"]
    assert (record["true_edges"], record["target_edges"]) == (45, 35), "7 of 9 above 1 GeV"
    assert record["edge_efficiency"] == 44 / 45
    assert record["target_efficiency"] == 1, "the lost one is of the first particle"
    assert record["purity"] == 44 / 150
    bare = write(tmp_path / "event000000002.pyg", without("track_particle_id"))
    record = import_acorn_folder(bare, tmp_path / "bare")["events"]["event000000002"]
    assert record["purity"] == 44 / 150
    assert "target_edges" not in record


@pytest.mark.parametrize("flipped", [0, 1])
def test_edges_that_are_there_twice_count_once(flipped: int, tmp_path: Path) -> None:
    """Repeated, or in both directions, as acorn's undirected graphs have them."""
    once, twice = columns(), columns()
    edges = twice["edge_index"]
    twice["edge_index"] = torch.cat([edges, edges.flip(0) if flipped else edges], dim=1)
    for name in ("edge_y", "edge_dr", *(name for name in twice if name.startswith("track_"))):
        twice[name] = twice[name].repeat(*[1] * (twice[name].dim() - 1), 2)
    one, two = (
        read_acorn(write(tmp_path / f"event{n}.pyg", content), f"event{n}")[1]
        for n, content in enumerate((once, twice))
    )
    names = ("edge_efficiency", "target_efficiency", "purity", "true_edges")
    assert {name: two[name] for name in names} == {name: one[name] for name in names}
    assert one["edge_efficiency"] == 44 / 45


def a_later_stage(seed: int) -> dict[str, Any]:
    """The same event as a filter of acorn leaves it: fewer edges, scores, hits scaled and back."""
    content = columns(seed)
    content["hit_r"], content["hit_z"] = (
        content[name] / 3.14 * 3.14 for name in ("hit_r", "hit_z")
    )
    for name in ("edge_index", "edge_y", "edge_dr"):
        content[name] = content[name][..., :100]
    to_edge = content["track_to_edge_map"]
    return {
        **content,
        "track_to_edge_map": to_edge.where(to_edge < 100, -1),
        "edge_scores": torch.rand(100),
    }


def test_an_event_is_known_again_in_another_stage(tmp_path: Path, run_program: Run) -> None:
    """So that what is trained on one stage's graphs is not evaluated on these events in another's:
    in older names too, cut in sectors, and thinned.
    """
    early, late = tmp_path / "early", tmp_path / "late"
    for seed in (1, 2):
        write(early / f"event00000000{seed}.pyg", columns(seed))
        write(late / f"event00000000{seed}-graph.pyg.gz", in_older_names(a_later_stage(seed)), True)
    graphs = [tmp_path / name for name in ("one", "two", "sectors", "thinned")]
    import_acorn_folder(early, graphs[0])
    import_acorn_folder(late, graphs[1])
    command = ["bigtrk", "partition", str(graphs[1]), str(graphs[2]), "--parts", "2"]
    assert run_program(command)[0] == 0
    drawn_run(tmp_path / "run")
    filter_folder(tmp_path / "run", graphs[1], graphs[3], cut=0.0, efficiency=None)
    origins = [[source.origin for source in open_events([folder])] for folder in graphs]
    assert len(set(origins[0])) == 2
    assert origins == [origins[0]] * 4


def test_events_of_one_name(tmp_path: Path) -> None:
    for folder in ("trainset", "valset"):
        write(tmp_path / "stage" / folder / "event000000001.pyg", columns())
    with pytest.raises(
        InputError, match=r"valset/event000000001\.pyg: is of the same event as .*trainset"
    ):
        import_acorn_folder(tmp_path / "stage", tmp_path / "graphs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: holds no \.pyg or \.pyg\.gz files"):
        import_acorn_folder(tmp_path / "empty", tmp_path / "graphs")
    assert not (tmp_path / "graphs").exists()


def without(*names: str) -> dict[str, Any]:
    return {key: one for key, one in columns().items() if key not in names}


def test_what_a_file_may_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing eta and r are computed; a graph without truth warns and has none."""
    monkeypatch.setattr("bigtrk.console._warned", set())
    known = read(tmp_path / "event000000001.pyg", columns())
    bare = without("hit_eta", "hit_r", "hit_phi")
    computed = read(tmp_path / "event000000001.pyg", bare)
    assert torch.allclose(computed.node_features[:, :4], known.node_features[:, :4], rtol=1e-6)
    assert read(tmp_path / "event000000001.pyg", without("edge_y")).y is None
    graph = read(tmp_path / "event000000001.pyg", without("track_particle_id"))
    assert (graph.particle_id, graph.particles) == (None, None)
    assert "event000000001.pyg: has no track_particle_id" in capsys.readouterr().err
    graph = read(tmp_path / "event000000001.pyg", without("track_particle_pt"))
    assert present(graph.particles).pt.isnan().all()
    assert "has no track_particle_pt (pt)" in capsys.readouterr().err
    counted = read(tmp_path / "event000000001.pyg", without("track_particle_nhits")).particles
    assert present(counted).nhits.tolist() == [LAYERS] * len(IDS)


def changed(name: str, row: int, value: float) -> dict[str, Any]:
    content = columns()
    content[name] = content[name].clone()
    content[name].view(-1)[row] = value
    return content


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (without("edge_index"), r"has no edge_index; name the folder of a later stage"),
        (without("hit_z"), r"has no hit_z \(z\); add it to feature_sets\.hit_features"),
        (without("hit_r", "hit_x"), r"has no hit_r \(r\); add it"),
        (changed("hit_phi", 4, np.nan), r"hit_phi \(phi\) of hit 4 is nan"),
        (changed("hit_phi", 2, 7.0), r"hit_phi \(phi\) of hit 2 is 7\.0, not from -3\.143 to 3"),
        (changed("track_edges", 5, 9999), r"track_edges of edge 5 ends at hit 9999, but"),
        ({**columns(), "edge_y": torch.ones(3)}, r"edge_y \(y\) has shape \[3\] for 150 edges"),
        ({**columns(), "edge_y": torch.full((150,), 2)}, r"edge_y \(y\) of edge 0 is 2, neither"),
        ({**columns(), "edge_index": torch.ones(2, 3)}, r"edge_index is torch\.float32 \[2, 3\]"),
        ({**columns(), "track_particle_id": torch.ones(45)}, r"track_particle_id .*loses ids"),
        ({**columns(), "track_particle_pt": torch.ones(4)}, r"track_particle_pt \(pt\) has shape"),
        ({**columns(), "pt": torch.ones(45)}, r"pt and track_particle_pt, acorn's two names"),
    ],
)
def test_bad_columns_are_named(content: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = write(tmp_path / "event000000001.pyg", content)
    with pytest.raises(InputError, match=rf"event000000001\.pyg: {complaint}") as said:
        import_acorn_folder(path, tmp_path / "graphs")
    assert "\n" not in str(said.value)
    assert not (tmp_path / "graphs").exists()


def test_older_names_of_equal_lengths(tmp_path: Path) -> None:
    content = columns()
    for name in ("edge_index", "edge_y", "edge_dr"):
        content[name] = content[name][..., :65].contiguous()
    read(tmp_path / "newer" / "event000000001.pyg", content)
    with pytest.raises(InputError, match=r"has as many hits as edges \(65\)"):
        read(tmp_path / "event000000001.pyg", in_older_names(content))
