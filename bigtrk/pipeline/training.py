"""Trains a pipeline by its settings: each stage in order, and the merge tree last."""

import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import yaml
from pydantic import Field, model_validator

import bigtrk
from bigtrk.config import Settings, parse, read_yaml
from bigtrk.console import follow, say
from bigtrk.disk.files import disk_errors, write_atomically
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError, number_of
from bigtrk.events.reader import find_events
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.builder import TrueEdgeBuilder
from bigtrk.graphs.builders.radius import RadiusBuilder
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.graphs import filter_folder
from bigtrk.pipeline.models import cut_for, load_embedding, load_scorer, radius_for
from bigtrk.pipeline.reconstruct import make_folder
from bigtrk.pipeline.stages import CLASSIFIER, EMBEDDING, FILTER, MERGE_TREE, classified
from bigtrk.records.pipeline import PIPELINE, PipelineRecord, ThresholdPoint, ThresholdRecord
from bigtrk.records.record import FileRecord, Text, read_record, write_record
from bigtrk.records.run_folder import RUN, read_run_record
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import launcher_words, resumption, train_logged
from bigtrk.tracks import edge_metrics
from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.merge_tree import MergeTree, write_merge_tree
from bigtrk.tracks.evaluation import listed_particles
from bigtrk.tracks.merge_tree_training import (
    UNCHOSEN,
    Scan,
    choose_threshold,
    cross_fitted_scan,
    known_event,
    train_quality,
)
from bigtrk.training.embedding import KEPT
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS
from bigtrk.training.settings import Configuration, code_named
from bigtrk.user_code import allow_code

Stage = dict[str, dict[str, Any]]  # settings of bigtrk/train.py, by section
CLASSES = {"embedding": "hit", "filter": "edge", "classifier": "edge"}  # the model of each stage
GIVEN = (("data", "train"), ("data", "validation"), ("run", "folder"), ("training", "seed"))


class PipelineSettings(Settings):
    """The settings in `pipeline.yaml`. embedding, filter, classifier: as for `bigtrk/train.py`,
    without the settings that the pipeline sets itself (GIVEN).
    """

    validation: int = Field(1, ge=1)
    """Events held back from the end (by name), on which radius and cuts are chosen, and the quality
    of tracks is learnt. On two or more, the quality that tracks need is also chosen [events]."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of all trainings."""
    embedding: Stage
    """Stage 1, the embedding of hits."""
    radius_efficiency: float = 0.99
    """Share of the target edges that the radius keeps."""
    filter: Stage
    """Stage 3, which thins the radius graphs."""
    filter_efficiency: float = 0.995
    """Share of the target edges that the filter keeps."""
    classifier: Stage
    """Stage 4, the graph network."""
    fakes: float = Field(0.017, ge=0, le=1)
    """Share of the tracks that may be fakes: as many particles are found as that allows."""

    @model_validator(mode="after")
    def _shares_are_looked_for(self) -> Self:
        for name, kept in (
            ("radius_efficiency", KEPT),
            ("filter_efficiency", edge_metrics.KEPT),
        ):
            if getattr(self, name) not in kept.values():
                shares = ", ".join(f"{share:g}" for share in kept.values())
                raise ValueError(f"{name} must be one of {shares}")
        return self

    def content(self, stage: str, graphs: Path, run: Path) -> Stage:
        """Returns the settings with which a stage trains in `run` on the graphs in `graphs`."""
        sections: Stage = getattr(self, stage)
        given: Stage = {
            "data": {"train": [str(graphs.resolve())], "validation": self.validation},
            "training": {"seed": self.seed},
            "run": {"folder": str(run)},
        }
        return {name: sections.get(name, {}) | given.get(name, {}) for name in sections | given}


def read_settings(file: Path) -> PipelineSettings:
    """Reads a pipeline's settings, with those of all its trainings. Raises InputError if a setting
    is unknown, wrong, or set by the pipeline itself, or a stage's model is of the wrong kind.
    """
    content = read_yaml(file, [{stage: [Configuration] for stage in CLASSES}])
    settings = parse(PipelineSettings, content, str(file))
    for stage, kind in CLASSES.items():
        for section, key in GIVEN:
            if key in getattr(settings, stage).get(section, {}):
                raise InputError(f"{file}: {stage}.{section}.{key} is set by bigtrk; leave it out")
        content = settings.content(stage, Path("graphs"), Path("run"))
        parsed = parse(Configuration, content, f"{file}: {stage}")
        allow_code(code_named(parsed))  # the user has named it
        if parsed.model.kind != kind:
            does = "embeds hits, as embedding" if kind == "hit" else "classifies edges, as mlp"
            raise InputError(
                f"{file}: {stage}.model.name={parsed.model.name}: this stage needs a model that "
                f"{does} does"
            )
    return settings


class StageRecord(FileRecord):
    """The record `STAGE.json`. graphs: the digest of the graphs that a stage was trained on."""

    made_again: ClassVar[str] = "remove it and the run next to it"

    format: Literal[1] = 1
    graphs: Text


def train_stage(
    stage: str, settings: PipelineSettings, graphs: Path, out: Path, launcher: Sequence[str]
) -> None:
    """Trains a stage in `out`/`stage`; InputError if that run had other graphs or settings."""
    run, file, about = out / stage, out / f"{stage}.yaml", out / f"{stage}.json"
    folder = GraphFolder(graphs)
    contents = repr([(event, folder.record(event)["digests"]) for event in folder.events])
    digest = hashlib.sha256(contents.encode()).hexdigest()
    content = settings.content(stage, graphs, run)
    if (run / RUN).exists():
        if about.exists() and read_record(StageRecord, about).graphs != digest:
            raise InputError(
                f"{run}: was trained on other graphs than {graphs} holds now; remove {run} to "
                f"train it again, or restore the events and the earlier stages"
            )
        _check_settings(run, content)
    if (run / WEIGHTS).exists() and (run / DESCRIPTION).exists():
        say(f"{run}: trained already")
        return
    again = resumption(run)
    if not again:
        with disk_errors():
            write_atomically(file, lambda path: path.write_text(yaml.safe_dump(content)))
            write_record(about, StageRecord(graphs=digest))
    train_logged([*launcher, str(TRAIN), *(again or [str(file)])], out / f"{stage}.log", os.environ)


def _check_settings(run: Path, content: dict[str, dict[str, object]]) -> None:
    """Raises InputError if a run had other settings; its folders may differ, so it can be moved."""
    wanted = Configuration.model_validate(content).model_dump(mode="json")
    # Settings that came after the run have their defaults there.
    trained = parse(Configuration, read_run_record(run).config, str(run / RUN))
    found = trained.model_dump(mode="json")
    for settings in (wanted, found):
        settings["data"]["train"] = settings["run"]["folder"] = None
    differ = [key for key in wanted if wanted[key] != found[key]]
    if differ:
        raise InputError(
            f"{run}: was trained with other settings of {', '.join(differ)}; remove {run} to train "
            f"it again, or give the former settings"
        )


def train_merge_tree(
    events: Iterable[tuple[EventGraph, ScoredGraph]], fakes: float, seed: int
) -> tuple[MergeTree, ThresholdRecord]:
    """Learns the quality of tracks from graphs with truth and scores, and chooses a threshold at
    which at most a share `fakes` of tracks are fake. Raises InputError as `train_quality`.
    """
    known = []
    for graph, scored in events:
        assert graph.particle_id is not None
        assert graph.particles is not None
        event = known_event(scored, graph.particle_id.numpy())
        known.append((event, listed_particles(graph.particles)))
    quality = train_quality([event for event, _ in known], seed)
    # A single event has no others to learn from.
    scan = cross_fitted_scan(known, seed) if len(known) > 1 else {}
    threshold = choose_threshold(scan, fakes)
    say(_choice(threshold, scan, fakes))
    points = tuple(
        ThresholdPoint(threshold=at, efficiency=found.efficiency, fake_rate=found.fake_rate)
        for at, found in scan.items()
    )
    record = ThresholdRecord(threshold=threshold, fakes=fakes, scan=points)
    return MergeTree(quality, threshold), record


def _choice(threshold: float, scan: Scan, fakes: float) -> str:
    """Describes, for the terminal, how the threshold was chosen."""
    if not scan:
        return (
            f"threshold {UNCHOSEN:g} of the quality: one held-back event is too few to choose it "
            f"by fakes: {fakes:g}; set validation: 2 or more"
        )
    found = scan[threshold]
    if found.fake_rate is None or found.efficiency is None:
        return f"threshold {threshold:g} of the quality: the held-back events have no tracks"
    told = (
        f"threshold {threshold:g} of the quality: finds {found.efficiency:.1%} of the particles of "
        f"the held-back events, with {found.fake_rate:.1%} fakes"
    )
    if found.fake_rate > fakes:
        told += f"; none leaves as few as {fakes:.1%}"
    return told


DEFAULT = Path(bigtrk.__file__).parent / "configs" / "pipeline.yaml"


def train_pipeline(events: Path, out: Path, file: Path | None, launcher: str | None) -> None:
    """Trains a pipeline on a folder of events; a second call continues the training. file: YAML of
    PipelineSettings; None: the shipped one. launcher: a command that starts Python programs on
    several ranks, such as "deepspeed --num_gpus 2". Raises InputError at bad input, if another
    process trains in `out`, or if a training fails.
    """
    settings = read_settings(file or DEFAULT)
    command = [sys.executable] if launcher is None else launcher_words(launcher)
    n_events = len(find_events(events))
    if n_events <= settings.validation:
        raise InputError(
            f"{events}: has {number_of(n_events, 'event')}, but {settings.validation} are held "
            f"back to choose radius, cuts and quality; give at least {settings.validation + 1}"
        )
    make_folder(out)
    with FolderLock() as lock:
        lock.take(out)
        true, near, thin = (out / "graphs" / stage for stage in ("true", "radius", "filtered"))
        say("stage 1: embedding", style="bold")
        build_with(events, true, TrueEdgeBuilder())
        train_stage(EMBEDDING, settings, true, out, command)
        embedding = load_embedding(out / EMBEDDING)
        radius = radius_for(out / EMBEDDING, settings.radius_efficiency)
        kept = f"{100 * settings.radius_efficiency:g} % of the target edges"
        say(f"stage 2: graphs of hits within radius {radius:.3g} ({kept})", style="bold")
        build_with(events, near, RadiusBuilder(embedding, embedding.digest, radius))
        say("stage 3: filter", style="bold")
        train_stage(FILTER, settings, near, out, command)
        cut = cut_for(out / FILTER, settings.filter_efficiency)
        filter_folder(out / FILTER, near, thin, cut, None)
        say("stage 4: classifier", style="bold")
        train_stage(CLASSIFIER, settings, thin, out, command)
        say("stage 5: quality of tracks", style="bold")
        classifier, folder = load_scorer(out / CLASSIFIER), GraphFolder(thin)
        # No stage was trained on these events.
        graphs = map(folder.read, folder.events[-settings.validation :])
        scored = ((graph, classified(graph, classifier)) for graph in graphs)
        shown = follow(scored, settings.validation, "scoring events")
        merge_tree, quality = train_merge_tree(shown, settings.fakes, settings.seed)
        weights = {
            EMBEDDING: embedding.digest,
            FILTER: load_scorer(out / FILTER).digest,
            CLASSIFIER: classifier.digest,
        }
        with disk_errors():
            write_merge_tree(out / MERGE_TREE, merge_tree)
            record = PipelineRecord(radius=radius, cut=cut, weights=weights, quality=quality)
            write_record(out / PIPELINE, record)
