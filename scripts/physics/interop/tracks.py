"""Checks of tracks and graphs in other forms: TrackML's, Parquet's lists, ACTS's CSV, HEPTrkX's."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

import bigtrk
from bigtrk.api import Graphs
from bigtrk.formats.heptrkx import export_heptrkx_folder, import_heptrkx_folder
from bigtrk.formats.track_files import write_gnn_graphs, write_prototracks, write_track_lists
from bigtrk.pipeline.models import load_scorer
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import copy_as_trackml, event_number, write_tracks
from scripts.physics.interop.check import Check, Found, Material

Members = set[frozenset[int]]  # the hits of each track


def forms(graphs: Graphs, events: Path, material: Material, name: str) -> Found:
    """Compares the tracks in each form, read by pandas, with those that were made."""
    model = bigtrk.load_model(material.classifier)
    place = material.folder / f"forms_{name}"
    made: dict[int, Members] = {}
    for graph in graphs:
        assert graph.hit_id is not None
        track_id = bigtrk.build_tracks(graph, model.score(graph), "walk")
        write_tracks(place / "tracks", graph.name, graph.hit_id.numpy(), track_id)
        made[event_number(graph.name)] = _members(graph.hit_id.numpy(), track_id)
    copy_as_trackml(place / "tracks", place / "mine.csv")
    write_track_lists(place / "tracks", place / "mine.parquet")
    write_prototracks(place / "tracks", place / "acts", events)
    trackml, lists = pd.read_csv(place / "mine.csv"), pd.read_parquet(place / "mine.parquet")
    for number, expected in made.items():
        rows = trackml[trackml.event_id == number]
        assert _several(_members(rows.hit_id, rows.track_id)) == _several(expected)
        of_event = lists[lists.event_id == number]
        assert {frozenset(hits) for hits in of_event.hit_ids.map(list)} == expected
        acts = pd.read_csv(place / "acts" / f"event{number:09d}-prototracks.csv")
        assert _members(acts.measurementId, acts.trackId) == expected
    return {}


def _members(hit_id: "np.ndarray | pd.Series", track_id: "np.ndarray | pd.Series") -> Members:
    table = pd.DataFrame({"hit": hit_id, "track": track_id})
    in_tracks = table[table.track != NO_TRACK]
    return {frozenset(hits) for _, hits in in_tracks.groupby("track").hit}


def _several(tracks: Members) -> Members:
    """Returns the tracks of several hits: TrackML's form makes a track of each hit in none."""
    return {hits for hits in tracks if len(hits) > 1}


def acts_graphs(graphs: Graphs, material: Material, name: str) -> Found:
    """Compares the edges and weights of ACTS's CSV with the graph and the model's scores."""
    scorer, out = load_scorer(material.classifier), material.folder / f"acts_graphs_{name}"
    write_gnn_graphs(graphs.folder.path, out, scorer)
    for graph in graphs:
        assert graph.hit_id is not None
        found = pd.read_csv(out / f"{graph.name}-gnn-graph.csv")
        ends = graph.hit_id[graph.edge_index].numpy()
        assert np.array_equal(found[["edge0", "edge1"]].to_numpy().T, ends)
        scores = scorer(graph).numpy().astype(np.float32)
        assert np.array_equal(found.weight.to_numpy(np.float32), scores)
    return {}


def heptrkx(graphs: Graphs, material: Material, name: str) -> Found:
    """Compares graphs with themselves, exported to HEPTrkX's npz and read back."""
    out = material.folder / f"npz_{name}"
    export_heptrkx_folder(graphs.folder.path, out)
    import_heptrkx_folder(out, material.folder / f"from_npz_{name}")
    worst = 0.0
    for graph, back in zip(
        graphs, bigtrk.open_graphs(material.folder / f"from_npz_{name}"), strict=True
    ):
        assert torch.equal(graph.edge_index, back.edge_index)
        assert graph.y is not None
        assert back.y is not None
        assert torch.equal(graph.y, back.y)
        for column in ("r", "phi", "z"):
            ours, theirs = (
                one.node_features[:, one.node_feature_names.index(column)].double()
                for one in (graph, back)
            )
            worst = max(worst, float(((ours - theirs).abs() / ours.abs().clamp(min=1e-3)).max()))
    assert worst < 1e-6, "more than a unit in the last place of float32"
    return {"heptrkx": worst}


CHECKS = (
    Check(
        "tracks of simulated events in each form",
        lambda m: forms(m.graphs, m.events, m, "simulated"),
    ),
    Check(
        "tracks of event 1000 in each form",
        lambda m: forms(m.real_graphs, m.real_events, m, "event1000"),
        real=True,
    ),
    Check("ACTS's CSV of simulated graphs", lambda m: acts_graphs(m.graphs, m, "simulated")),
    Check(
        "ACTS's CSV of event 1000",
        lambda m: acts_graphs(m.real_graphs, m, "event1000"),
        real=True,
    ),
    Check("HEPTrkX's npz of simulated graphs", lambda m: heptrkx(m.graphs, m, "simulated")),
    Check("HEPTrkX's own graphs", lambda m: heptrkx(m.heptrkx_graphs, m, "own"), real=True),
)
