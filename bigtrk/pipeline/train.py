"""`bigtrk pipeline`: all stages trained in order, resumed wherever they were left."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import bigtrk
from bigtrk.config import load_settings
from bigtrk.console import say
from bigtrk.disk.files import disk_errors, write_atomically
from bigtrk.errors import InputError
from bigtrk.events.reader import find_events
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.builder import TrueEdgeBuilder
from bigtrk.graphs.builders.radius import RadiusBuilder
from bigtrk.graphs.coordinates import Ints
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.pipeline.embedding import load_embedding, radius_for
from bigtrk.pipeline.filtering import filter_folder
from bigtrk.pipeline.scoring import cut_for, load_scorer
from bigtrk.pipeline.settings import PipelineSettings
from bigtrk.pipeline.stages import CLASSIFIER, EMBEDDING, FILTER, MERGE_TREE, classified
from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.record import write_record
from bigtrk.records.run_folder import RUN
from bigtrk.studies.launch import train_logged
from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.merge_tree import MergeTree
from bigtrk.tracks.builders.trees.merge_tree_file import write_merge_tree
from bigtrk.tracks.builders.trees.quality_training import train_quality
from bigtrk.training.run_folder import WEIGHTS

DEFAULT = Path(bigtrk.__file__).parent / "configs" / "pipeline.yaml"
TRAIN = Path(bigtrk.__file__).parent / "train.py"


@dataclass(frozen=True)
class PipelineTraining:
    """The training of a pipeline's stages in folder `out`; launcher: what precedes train.py."""

    events: Path
    out: Path
    settings: PipelineSettings
    launcher: tuple[str, ...]

    def run(self) -> Path:
        """Trains what is not trained yet, and returns `out`/pipeline.json.

        Raises:
            InputError: bad input, or a training failed; what was done before stays.
        """
        names = find_events(self.events)
        if len(names) <= self.settings.validation:
            raise InputError(
                f"{self.events}: {len(names)} events, of which {self.settings.validation} are held "
                f"back to choose radius and cuts; give more events"
            )
        out, settings = self.out, self.settings
        true, near, thin = (out / "graphs" / stage for stage in ("true", "radius", "filtered"))
        say("stage 1: embedding", style="bold")
        build_with(self.events, true, TrueEdgeBuilder())
        self._train(EMBEDDING, settings.embedding, true)
        say("stage 2: radius graphs", style="bold")
        embedding = load_embedding(out / EMBEDDING)
        radius = radius_for(out / EMBEDDING, settings.radius_efficiency)
        build_with(self.events, near, RadiusBuilder(embedding, embedding.digest, radius))
        say("stage 3: filter", style="bold")
        self._train(FILTER, settings.filter, near)
        cut = cut_for(out / FILTER, settings.filter_efficiency)
        filter_folder(out / FILTER, near, thin, cut, None)
        say("stage 4: classifier", style="bold")
        self._train(CLASSIFIER, settings.classifier, thin)
        say("stage 5: quality of tracks", style="bold")
        quality = train_quality(self._held_back(thin), seed=settings.seed)
        with disk_errors():
            write_merge_tree(out / MERGE_TREE, MergeTree(quality, settings.threshold))
            write_record(out / PIPELINE, PipelineRecord(radius=radius, cut=cut))
        return out / PIPELINE

    def _held_back(self, graphs: Path) -> Iterator[tuple[ScoredGraph, Ints]]:
        """Scores the events that no stage was trained on, for their candidates."""
        classifier, folder = load_scorer(self.out / CLASSIFIER), GraphFolder(graphs)
        for event in folder.events[-self.settings.validation :]:
            graph = folder.read(event)
            assert graph.particle_id is not None
            yield classified(graph, classifier), graph.particle_id.numpy()

    def _train(self, stage: str, settings: Mapping[str, Any], graphs: Path) -> None:
        """Trains a stage on folder `graphs`, unless it is trained; continues one that was begun."""
        run = self.out / stage
        if (run / WEIGHTS).exists():
            say(f"{run}: is trained")
            return
        content = {
            **settings,
            "data": {
                **settings.get("data", {}),
                "train": [str(graphs)],
                "validation": self.settings.validation,
            },
            "training": {**settings.get("training", {}), "seed": self.settings.seed},
            "run": {**settings.get("run", {}), "folder": str(run)},
        }
        file = self.out / f"{stage}.yaml"
        with disk_errors():
            write_atomically(file, lambda path: path.write_text(yaml.safe_dump(content)))
        given = ["--resume", str(run)] if (run / RUN).exists() else [str(file)]
        train_logged([*self.launcher, str(TRAIN), *given], self.out / f"{stage}.log")


def train_pipeline(events: Path, out: Path, file: Path | None, launcher: str | None) -> Path:
    """Trains a pipeline on the events of a folder; returns its `pipeline.json`.

    file: of `PipelineSettings`, the shipped one without it. launcher: a command line that starts
    Python programs on several ranks, such as "deepspeed --num_gpus 2".

    Raises:
        InputError: bad input, or a training failed; the same call continues.
    """
    settings = load_settings(PipelineSettings, file or DEFAULT, [])
    command = (sys.executable,) if launcher is None else tuple(shlex.split(launcher))
    with disk_errors():
        out.mkdir(parents=True, exist_ok=True)
    return PipelineTraining(events, out, settings, command).run()
