"""A pipeline that nobody trained: its scores are spread, so that every edge matters to tracks."""

from pathlib import Path
from typing import Any

from scipy.spatial import cKDTree
from torch import Tensor

from bigtrk.events.event import Event
from bigtrk.graphs.builders.builder import event_graph
from bigtrk.graphs.builders.radius import largest_radius, outwards, pairs_within
from bigtrk.pipeline.models import load_embedding, load_scorer
from bigtrk.pipeline.stages import CLASSIFIER, EMBEDDING, FILTER, MERGE_TREE
from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.record import write_record
from bigtrk.tracks.builders.merge_tree import MergeTree, write_merge_tree
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration
from tests.tracks.builders.events import quality_of

STAGES: dict[str, dict[str, Any]] = {
    EMBEDDING: {
        "model": {"name": "embedding", "hidden": 16, "mlp_layers": 2, "dimensions": 4},
        "data": {"node_features": ["r", "cos_phi", "sin_phi", "z"]},
    },
    FILTER: {"model": {"name": "mlp", "hidden": 16, "mlp_layers": 2}},
    CLASSIFIER: {"model": {"hidden": 16, "layers": 4}},
}
PAIRS_PER_HIT = 12


def write_pipeline(folder: Path, event: Event) -> None:
    """Writes a pipeline whose radius gives `event` PAIRS_PER_HIT, whose filter keeps half of them,
    and whose classifier's scores are spread from 0 to 1.
    """
    for stage in STAGES:
        write_run(folder / stage, stage)
    embedding = load_embedding(folder / EMBEDDING)
    tree = cKDTree(embedding(event))
    radius = largest_radius(tree, 10.0, PAIRS_PER_HIT * tree.n)
    pairs = outwards(event.hits, pairs_within(tree, radius, event.hits))
    graph = event_graph(event, pairs, true=None)
    scores = load_scorer(folder / FILTER)(graph)
    cut = float(scores.median())
    scored = load_scorer(folder / CLASSIFIER)(graph.take_edges(scores >= cut))
    write_run(folder / CLASSIFIER, CLASSIFIER, scored.logit())
    weights = {stage: load_scorer(folder / stage).digest for stage in (FILTER, CLASSIFIER)}
    record = PipelineRecord(
        radius=radius, cut=cut, weights={EMBEDDING: embedding.digest, **weights}
    )
    quality = quality_of("mean_score", 1.0, 0.0, with_modules=True)
    write_merge_tree(folder / MERGE_TREE, MergeTree(quality, 0.5))
    write_record(folder / PIPELINE, record)


def write_run(run: Path, stage: str, logits: Tensor | None = None) -> None:
    """Writes the model of a stage as a run does in the end; with the logits of before, another
    whose logits are these, brought to a mean of 0 and a deviation of 3.
    """
    configuration = Configuration.model_validate(STAGES[stage])
    weights = build_model(configuration).state_dict()
    if logits is not None:
        factor = 3 / float(logits.std())
        weights["decoder.output_bias"] -= float(logits.mean())
        for name in ("decoder.output_weight", "decoder.output_bias"):
            weights[name] *= factor
    run.mkdir(parents=True, exist_ok=True)
    save_model(run, weights, describe(configuration, []))
