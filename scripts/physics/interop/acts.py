"""Checks of the models that are exported for ACTS."""

from collections.abc import Sequence
from pathlib import Path

from bigtrk.api import Graphs
from bigtrk.formats.acts.export import export_run, export_stages
from bigtrk.pipeline.trained import stages_of
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
    Check("ACTS: tracks of event 1000", lambda m: tracks(m.real_graphs, m), real=True),
)
