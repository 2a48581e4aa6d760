"""acorn's own track building, evaluation and reading for a training, on what is exported to it."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.formats.acorn.export_graphs import export_acorn_folder
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import EDGE_FEATURES
from bigtrk.graphs.sector import whole_sector
from bigtrk.graphs.target import Target, target_edges
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.builders.registry import make_builder
from bigtrk.tracks.evaluation import listed_particles, scored_graph
from bigtrk.tracks.matching import Matching, TrackMetrics, match_tracks, pooled
from bigtrk.tracks.names import BuilderName
from tests.formats.acorn.folders import folder_of
from tests.programs import CHECKOUT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("ACORN_PATH"), reason="ACORN_PATH does not name a copy of acorn"
    ),
]
EVENTS, MIN_HITS, PT_MIN = 3, 3, 0.3
MATCHING = Matching("ATLAS", "acorn", pt_min=PT_MIN, min_track_length=MIN_HITS, hits_min=MIN_HITS)
COUNTS = {
    "Number of particles": "n_particles",
    "Number of reconstructed particles": "n_reconstructed",
    "Number of tracks": "n_tracks",
    "Number of matched tracks": "n_matched",
}


def noisy(graph: EventGraph) -> Tensor:
    """Scores of a model that errs on some edges of either kind."""
    assert graph.y is not None
    noise = torch.rand(graph.n_edges, generator=torch.Generator().manual_seed(graph.n_edges))
    return torch.where(graph.y, noise**0.5, noise**4).double()


@pytest.fixture(scope="module")
def graphs() -> list[EventGraph]:
    """Graphs of simulated events."""
    windows = WindowBuilder(builtin_windows())
    events = [simulate_event(150, seed=one, event_id=one) for one in range(1, EVENTS + 1)]
    return [build_graph(event, windows) for event in events]


@pytest.mark.parametrize(
    ("acorns", "cuts", "ours"),
    [
        ("ConnectedComponents", {"score_cut": 0.5}, BuilderName.COMPONENTS),
        (
            "CCandWalk",
            {"score_cut_cc": 0.01, "score_cut_walk": {"min": 0.1, "add": 0.6}, "max_workers": 1},
            BuilderName.WALK,
        ),
    ],
)
def test_its_tracks_are_as_many_as_ours(
    acorns: str, cuts: dict[str, Any], ours: BuilderName, graphs: list[EventGraph], tmp_path: Path
) -> None:
    folder_of(tmp_path / "graphs", *graphs)
    export_acorn_folder(tmp_path / "graphs", tmp_path / "scored" / "testset", noisy)
    config = {
        "input_dir": str(tmp_path / "scored"),
        "stage_dir": str(tmp_path / "tracks"),
        "data_split": [0, 0, EVENTS],
        "dataset": "testset",
        "matching_fraction": 0.5,
        "matching_style": "ATLAS",
        "target_tracks": {"pt": [PT_MIN, 1e9], "nhits": [MIN_HITS, 1e9]},
        "min_track_length": MIN_HITS,
        "plots": {"tracking_efficiency": {"variables": {}}},
        **cuts,
    }
    run_acorn(acorns, config)
    expected = pooled([judged(graph, ours) for graph in graphs])
    assert counts_of(tmp_path / "tracks") == {
        name: getattr(expected, ours) for name, ours in COUNTS.items()
    }
    assert 0 < expected.n_reconstructed < expected.n_particles


def test_its_trainings_read_our_graphs(graphs: list[EventGraph], tmp_path: Path) -> None:
    """The target edges of its weighting are ours, and so are the features that it computes."""
    graph = graphs[0]
    folder_of(tmp_path / "graphs", graph)
    export_acorn_folder(tmp_path / "graphs", tmp_path / "stage" / "trainset")
    target = {"y": True, "pt": [PT_MIN, 1e9], "nhits": [MIN_HITS, 1e9]}
    config = {
        "input_dir": str(tmp_path / "stage"),
        "stage_dir": str(tmp_path),
        "node_features": ["r", "phi", "z", "eta"],
        "node_scales": [1000.0, math.pi, 1000.0, 1.0],
        "edge_features": list(EDGE_FEATURES),
        "weighting": [{"weight": 3.0, "conditions": target}],
    }
    run_acorn("GraphDataset", config)
    read = torch.load(tmp_path / "read.pt")
    wanted = Target(pt_min=PT_MIN, hits_min=MIN_HITS)
    assert graph.y is not None
    ours = target_edges(graph.y, graph.edge_index, graph.particle_id, graph.particles, wanted)
    assert torch.equal(read["weights"] == 3.0, ours)
    assert 0 < ours.sum() < graph.y.sum()
    scales = torch.tensor([1000.0, math.pi, 1000.0, 1.0, math.pi / 1000.0, math.pi])
    theirs = torch.stack([read[name] for name in EDGE_FEATURES], dim=1)
    assert torch.allclose(graph.edge_features / scales, theirs.float(), rtol=1e-3, atol=1e-5)


def run_acorn(name: str, config: dict[str, Any]) -> None:
    """Runs acorn in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.oracle.acorn_program", name, json.dumps(config)],
        cwd=CHECKOUT,
        # Newer versions of torch read no more than tensors unless they are told to.
        env={**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def counts_of(stage: Path) -> dict[str, int]:
    """Reads the counts that acorn writes of what it found."""
    said = (stage / "results_summary_ATLAS.txt").read_text()
    pattern = "^({}): (\\d+)$".format("|".join(COUNTS))
    return {name: int(count) for name, count in re.findall(pattern, said, flags=re.MULTILINE)}


def judged(graph: EventGraph, builder: BuilderName) -> TrackMetrics:
    """Judges our tracks of the same scores as acorn does."""
    assert graph.particles is not None
    assert graph.particle_id is not None
    event = whole_sector(graph)
    scores = noisy(graph)[event.edge_id]
    track_id = make_builder(builder, None)(scored_graph(event, scores), MIN_HITS)
    if builder is BuilderName.WALK:  # hits in no track have one label there, which is judged too
        track_id = np.where(track_id == NO_TRACK, track_id.max() + 1, track_id)
    particles = listed_particles(graph.particles)
    return match_tracks(track_id, graph.particle_id.numpy(), particles, MATCHING).metrics
