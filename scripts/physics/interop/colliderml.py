"""Checks of ColliderML's files, submissions and metrics."""

from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from colliderml.tasks.tracking import metrics as public

import bigtrk
from bigtrk.api import Graphs
from bigtrk.events.event import EventFormat
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.events.truth import hit_particles, hit_weights
from bigtrk.formats.track_files import submit_tracks
from bigtrk.tracks.files import event_number, write_tracks
from bigtrk.tracks.matching import Criteria
from bigtrk.tracks.score_files import score_files
from scripts.physics.interop.check import EVENTS, PARTICLES, Check, Found, Material
from tests.tracks.colliderml_tables import NAMES, judged, random_rows, random_truth, theirs

COLLIDERML = "colliderml"
SUBMISSIONS, HITS, MOST_SECONDS = 100, 250_000, 2.0
PARTICLES_OF_LARGE = 23_500  # which leave a little more than HITS in the Open Data Detector
WORST = 1e-6


def same_graphs(material: Material) -> Found:
    """Compares graphs of the same simulated events in ColliderML's files and in TrackML's."""
    sample = material.folder / "sample"
    simulate_folder(sample, range(EVENTS), PARTICLES, 0, None, file_format=EventFormat.COLLIDERML)
    graphs = bigtrk.build_graphs(sample, material.folder / "sample_graphs")
    for ours, expected in zip(graphs, material.graphs, strict=True):
        assert torch.equal(ours.edge_index, expected.edge_index)
        for column in ("y", "particle_id", "modules"):
            assert torch.equal(getattr(ours, column), getattr(expected, column)), column
    return {}


def metrics(material: Material) -> Found:
    """Compares the four metrics of random submissions with the package's own functions."""
    del material
    draw = np.random.default_rng(0)
    worst = 0.0
    for _ in range(SUBMISSIONS):
        weighted, claims = draw.random() < 0.5, draw.random() < 0.8
        events = [random_truth(draw, weighted) for _ in range(int(draw.integers(1, 4)))]
        submission = [random_rows(draw, truth) for truth in events]
        ours, expected = judged(events, submission, claims), theirs(events, submission, claims)
        worst = max(worst, *(abs(getattr(ours, name) - expected[name]) for name in NAMES))
    assert worst < WORST
    return {COLLIDERML: worst}


def of_tracks(graphs: Graphs, events: Path, material: Material, name: str) -> Found:
    """Compares the metrics of a submission of our tracks with the package's, file against file."""
    model = bigtrk.load_model(material.classifier)
    tracks, out = material.folder / f"tracks_{name}", material.folder / f"{name}.parquet"
    for graph in graphs:
        track_id = bigtrk.build_tracks(graph, model.score(graph), "walk")
        assert graph.hit_id is not None
        write_tracks(tracks, graph.name, graph.hit_id.numpy(), track_id)
    submit_tracks(tracks, events, out)
    found = score_files(out, events, Criteria(), "colliderml").colliderml
    assert found is not None
    given, truth = pq.read_table(out), _truth(events)
    expected = {
        "trackml_eff": public.trackml_weighted_efficiency(given, truth),
        "fake_rate": public.fake_rate(given, truth),
        "dup_rate": public.duplicate_rate(given, truth),
    }
    worst = max(abs(getattr(found.submitted, key) - value) for key, value in expected.items())
    assert worst < WORST
    return {COLLIDERML: worst}


def _truth(events: Path) -> pa.Table:
    """Returns the hits of all events as the package takes them: a row each."""
    tables = []
    for name in find_events(events):
        event = read_event(events, name)
        weight = hit_weights(event)
        columns = {
            "event_id": np.full(len(event.hits["hit_id"]), event_number(name)),
            "hit_id": event.hits["hit_id"],
            "particle_id": hit_particles(event),
            **({} if weight is None else {"weight": weight}),
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def large(material: Material) -> Found:
    """Reads an event of ColliderML's size; it may take two seconds."""
    sample = material.folder / "large"
    simulate_folder(
        sample, range(1), PARTICLES_OF_LARGE, 0, "odd", file_format=EventFormat.COLLIDERML
    )
    start = perf_counter()
    event = read_event(sample, find_events(sample)[0])
    seconds = perf_counter() - start
    hits = len(event.hits["x"])
    assert hits >= HITS, f"{hits} hits"
    assert seconds < MOST_SECONDS, f"{seconds:.1f} s"
    return {"read_s": seconds}


CHECKS = (
    Check("ColliderML's files and TrackML's give the same graphs", same_graphs),
    Check("ColliderML's metrics of random submissions", metrics),
    Check(
        "ColliderML's metrics of our tracks of simulated events",
        lambda m: of_tracks(m.graphs, m.events, m, "simulated"),
    ),
    Check(
        "ColliderML's metrics of our tracks of event 1000",
        lambda m: of_tracks(m.real_graphs, m.real_events, m, "event1000"),
        real=True,
    ),
    Check("an event of 250,000 hits is read", large),
)
