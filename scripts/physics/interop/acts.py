"""Checks of the models that are exported for ACTS, and of tracks by its own judge."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigtrk.api import Graphs
from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.truth import hit_particles
from bigtrk.formats.acts.modules import export_run, export_stages
from bigtrk.formats.acts.simulation import FatrasOptions, simulate_with_acts
from bigtrk.formats.acts.software import load_acts, python_step
from bigtrk.pipeline.trained import stages_of
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.evaluation import judge_hits
from bigtrk.tracks.matching import Matching
from scripts.physics.interop.check import Check, Found, Material
from tests.formats.acts.stages import MODELS, hits_and_edges, stage
from tests.oracle.as_acts import OPEN, changed_tracks, parity

KEYS = {"onnx": "onnx", "pt": "torchscript"}
FEW, MANY = ((0, 0), (2, 1), (2, 2), (200, 1000)), ((20_000, 1_000_000),)  # hits, edges
WORST, CHANGED_HITS = 1e-5, 1e-4


def exported(run: Path, material: Material) -> Path:
    """Returns the folder of a run's exported models."""
    out = material.folder / f"acts_{run.name}"
    if not out.exists():
        export_run(run, out, stages_of)
    return out


def drawn(names: Sequence[str], sizes: Sequence[tuple[int, int]], material: Material) -> Found:
    """Compares logits of models with random weights on random hits and edges."""
    worst = dict.fromkeys(OPEN, 0.0)
    for name in names:
        made, out = stage(MODELS[name]), material.folder / f"acts drawn {name}"
        export_stages([made], out)
        graphs = (hits_and_edges(*size, seed) for seed, size in enumerate(sizes))
        found = parity([made], out, graphs)
        worst = {kind: max(worst[kind], found[kind]) for kind in worst}
    return _named(worst)


def on(graphs: Graphs, run: Path, material: Material) -> Found:
    """Compares logits on the graphs of events."""
    return _named(parity(stages_of(run), exported(run, material), graphs))


def _named(worst: dict[str, float]) -> Found:
    assert max(worst.values()) < WORST
    return {KEYS[kind]: value for kind, value in worst.items()}


def tracks(graphs: Graphs, material: Material) -> Found:
    """Counts the hits whose track by an exported model's scores is of other hits than by ours. The
    limit is that of components. Builders that choose the best edge differ where several score 1
    to the last digits of float32.
    """
    run = material.classifier
    found = {
        builder: max(changed_tracks(run, exported(run, material), graphs, builder).values())
        for builder in ("components", "junction_removal", "walk")
    }
    assert found["components"] <= CHANGED_HITS, found
    return {f"changed_hits_{builder}": share for builder, share in found.items()}


# Our rules, and whether ACTS matches both ways for the same.
_RULES = {
    Matching(style, "strict", pt_min=1.0, min_track_length=3, hits_min=3): style == "two_way"
    for style in ("ATLAS", "two_way")
}


def judges(material: Material) -> Found:
    """Compares our efficiency, fakes and duplicates with those of ACTS's own judge, on the true
    tracks of a simulated event with hits taken out, mixed up and split off.
    """
    folder = material.folder / "fatras"
    simulate_with_acts(folder, range(1), FatrasOptions(particles=2000, seed=3))
    event = read_event(folder, find_events(folder)[0])
    track_id = _spoiled(hit_particles(event))
    judged = judge_hits(event, track_id, tuple(_RULES))
    worst = 0.0
    for ours, double in zip(judged.metrics, _RULES.values(), strict=True):
        theirs = _judged_by_acts(folder, event, track_id, double)
        pairs = [
            (ours.n_particles, theirs["nTotalParticles"]),
            (ours.n_reconstructed, theirs["nTotalMatchedParticles"]),
            (ours.n_tracks, theirs["nTotalTracks"]),
            (ours.n_tracks - ours.n_matched, theirs["nTotalFakeTracks"]),
            (ours.efficiency, theirs["efficiencyParticles"]),
        ]
        assert ours.n_tracks - ours.n_matched > 0  # there is something to judge
        worst = max(worst, *(abs(one - other) for one, other in pairs))
    assert worst < 1e-6, worst
    return {"acts_judge": worst}


def _spoiled(particle_id: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns tracks of at least 3 hits that are true except for some hits."""
    random = np.random.default_rng(0)
    track_id = np.unique(particle_id, return_inverse=True)[1].astype(np.int64)
    mixed, split, none = (random.random(len(track_id)) < share for share in (0.25, 0.1, 0.05))
    track_id[mixed] = random.choice(track_id, int(mixed.sum()))
    track_id[split] += track_id.max() + 1
    track_id[none] = NO_TRACK
    _, track, length = np.unique(track_id, return_inverse=True, return_counts=True)
    return np.where(length[track] < 3, NO_TRACK, track_id)


def _judged_by_acts(
    folder: Path, event: Event, track_id: NDArray[np.int64], double: bool
) -> dict[str, Any]:
    """Returns what ACTS's matcher and performance writer count. Its matching fraction is reached by
    equality, ours is passed.
    """
    acts = load_acts()
    examples, quiet = acts.examples, acts.logging.Level.ERROR
    tracks = {"level": quiet, "inputTracks": "tracks"}
    sequencer = examples.Sequencer(events=1, numThreads=1, logLevel=quiet, trackFpes=False)
    for reader in _readers(examples, quiet, _unpacked(folder, event.name)):
        sequencer.addReader(reader)
    for algorithm in (
        _tracks_step(acts, track_id),
        examples.ProtoTracksToTracks(
            level=quiet,
            inputMeasurements="subset",
            inputProtoTracks="proto_tracks",
            inputTrackParameters="",
            outputTracks="tracks",
        ),
        examples.ParticleSelector(
            level=quiet,
            inputParticles="particles",
            inputParticleMeasurementsMap="to_measurements",
            outputParticles="targets",
            ptMin=1.0,
            measurementsMin=3,
        ),
        examples.TrackTruthMatcher(
            **tracks,
            inputParticles="particles",
            inputMeasurementParticlesMap="to_particles",
            outputTrackParticleMatching="of_tracks",
            outputParticleTrackMatching="of_truth",
            matchingRatio=0.5 + 1e-9,
            doubleMatching=double,
        ),
    ):
        sequencer.addAlgorithm(algorithm)
    judge = examples.PythonPatternRecognitionPerformanceWriter(
        **tracks,
        inputTrackParticleMatching="of_tracks",
        inputParticleTrackMatching="of_truth",
        inputParticles="targets",
        inputParticleMeasurementsMap="to_measurements",
    )
    sequencer.addWriter(judge)
    sequencer.run()
    return dict(judge.stats())


def _readers(examples: Any, level: Any, folder: Path) -> list[Any]:
    """Returns the readers of an event's particles, simulated hits and measurements."""
    place = {"level": level, "inputDir": str(folder)}
    return [
        examples.CsvParticleReader(
            **place, inputStem="particles_simulated", outputParticles="particles"
        ),
        examples.CsvSimHitReader(**place, inputStem="hits", outputSimHits="simulated"),
        examples.CsvMeasurementReader(
            **place,
            inputSimHits="simulated",
            outputMeasurements="measurements",
            outputMeasurementSimHitsMap="to_hits",
            outputMeasurementParticlesMap="to_particles",
            outputClusters="",
        ),
    ]


def _tracks_step(acts: Any, track_id: NDArray[np.int64]) -> Any:
    """Returns the step that writes tracks, all measurements, and those of each particle."""
    examples = acts.examples
    groups = [np.flatnonzero(track_id == one) for one in np.unique(track_id) if one != NO_TRACK]
    tracks = examples.ProtoTrackContainer([examples.ProtoTrack(one.tolist()) for one in groups])
    hits = range(len(track_id))
    return python_step(
        acts,
        lambda found: {
            "proto_tracks": tracks,
            "subset": examples.MeasurementSubset(found["measurements"], hits),
            "to_measurements": found["to_particles"].invert(),
        },
        {
            "measurements": examples.MeasurementContainer,
            "to_particles": examples.MeasurementParticlesMap,
        },
        {
            "proto_tracks": examples.ProtoTrackContainer,
            "subset": examples.MeasurementSubset,
            "to_measurements": examples.ParticleMeasurementsMap,
        },
    )


def _unpacked(folder: Path, event: str) -> Path:
    """Unpacks the files of an event, since ACTS's readers take no packed ones."""
    out = folder.with_name(f"{folder.name}_unpacked")
    out.mkdir(exist_ok=True)
    for file in folder.glob(f"{event}-*.csv.gz"):
        (out / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    return out


CHECKS = (
    Check("ACTS: every option on 0 to 1,000 edges", lambda m: drawn(tuple(MODELS), FEW, m)),
    Check("ACTS: 1,000,000 edges", lambda m: drawn(("interaction", "mlp", "embedding"), MANY, m)),
    Check("ACTS: the filter on simulated graphs", lambda m: on(m.graphs, m.filter, m)),
    Check("ACTS: the embedding", lambda m: on(m.graphs, m.embedding, m)),
    Check("ACTS: the classifier on simulated graphs", lambda m: on(m.graphs, m.classifier, m)),
    Check(
        "ACTS: the classifier on event 1000",
        lambda m: on(m.real_graphs, m.classifier, m),
        real=True,
    ),
    Check(
        "ACTS: the classifier on HEPTrkX graphs",
        lambda m: on(m.heptrkx_graphs, m.classifier, m),
        real=True,
    ),
    Check("ACTS: tracks of simulated graphs", lambda m: tracks(m.graphs, m)),
    Check("ACTS: its own judge of tracks", judges),
    Check("ACTS: tracks of event 1000", lambda m: tracks(m.real_graphs, m), real=True),
)
