"""`bigtrk pipeline train`: all stages in order, continued wherever they were left."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bigtrk
from bigtrk.console import say
from bigtrk.disk.files import disk_errors
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError
from bigtrk.events.reader import find_events
from bigtrk.graphs.builders.build_folder import build_with
from bigtrk.graphs.builders.builder import TrueEdgeBuilder
from bigtrk.graphs.builders.radius import RadiusBuilder
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.pipeline.embedding import load_embedding, radius_for
from bigtrk.pipeline.filtering import filter_folder
from bigtrk.pipeline.hit_notes import layer_modules
from bigtrk.pipeline.scoring import EdgeScorer, cut_for, load_scorer
from bigtrk.pipeline.stages import CLASSIFIER, EMBEDDING, FILTER, MERGE_TREE, classified
from bigtrk.pipeline.tracks_folder import make_folder
from bigtrk.pipeline.training.settings import PipelineSettings, read_settings
from bigtrk.pipeline.training.stage_training import train_stage
from bigtrk.pipeline.training.track_quality import train_merge_tree
from bigtrk.records.pipeline import PIPELINE, LayerModules, PipelineRecord
from bigtrk.records.record import write_record
from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.merge_tree import write_merge_tree

DEFAULT = Path(bigtrk.__file__).parent / "configs" / "pipeline.yaml"


@dataclass(frozen=True)
class PipelineTraining:
    """The training of a pipeline's stages in folder `out`; launcher: what precedes train.py."""

    events: Path
    out: Path
    settings: PipelineSettings
    launcher: tuple[str, ...]

    def run(self) -> None:
        """Trains what is not trained yet, and writes `out`/pipeline.json.

        Raises:
            InputError: bad input, or a training failed; what was done before stays.
        """
        out, settings = self.out, self.settings
        true, near, thin = (out / "graphs" / stage for stage in ("true", "radius", "filtered"))
        say("stage 1: embedding", style="bold")
        build_with(self.events, true, TrueEdgeBuilder())
        self._train(EMBEDDING, true)
        embedding = load_embedding(out / EMBEDDING)
        radius = radius_for(out / EMBEDDING, settings.radius_efficiency)
        say(f"stage 2: graphs of hits within {radius:.3g}", style="bold")
        build_with(self.events, near, RadiusBuilder(embedding, embedding.digest, radius))
        say("stage 3: filter", style="bold")
        self._train(FILTER, near)
        cut = cut_for(out / FILTER, settings.filter_efficiency)
        filter_folder(out / FILTER, near, thin, cut, None)
        say("stage 4: classifier", style="bold")
        self._train(CLASSIFIER, thin)
        say("stage 5: quality of tracks", style="bold")
        classifier = load_scorer(out / CLASSIFIER)
        held_back = self._held_back(thin, classifier)
        merge_tree, quality = train_merge_tree(held_back, settings.fakes, settings.seed)
        record = PipelineRecord(
            radius=radius,
            cut=cut,
            weights={
                EMBEDDING: embedding.digest,
                FILTER: load_scorer(out / FILTER).digest,
                CLASSIFIER: classifier.digest,
            },
            quality=quality,
            modules=self._modules(true),
        )
        with disk_errors():
            write_merge_tree(out / MERGE_TREE, merge_tree)
            write_record(out / PIPELINE, record)

    def _train(self, stage: str, graphs: Path) -> None:
        train_stage(stage, self.settings, graphs, self.out, self.launcher)

    def _modules(self, graphs: Path) -> tuple[LayerModules, ...]:
        """Lists where the events have hits that the stages were trained on."""
        folder = GraphFolder(graphs)
        trained = folder.events[: -self.settings.validation]
        return layer_modules(folder.read(event) for event in trained)

    def _held_back(
        self, graphs: Path, classifier: EdgeScorer
    ) -> Iterator[tuple[EventGraph, ScoredGraph]]:
        """Scores the events that no stage was trained on, for their candidates."""
        folder = GraphFolder(graphs)
        for event in folder.events[-self.settings.validation :]:
            graph = folder.read(event)
            yield graph, classified(graph, classifier)


def train_pipeline(events: Path, out: Path, file: Path | None, launcher: str | None) -> None:
    """Trains a pipeline on the events of a folder.

    file: of `PipelineSettings`, the shipped one without it. launcher: a command line that starts
    Python programs on several ranks, such as "deepspeed --num_gpus 2".

    Raises:
        InputError: bad input, another process trains in `out`, or a training failed; the same call
            continues.
    """
    settings = read_settings(file or DEFAULT)
    command = (sys.executable,) if launcher is None else _launcher(launcher)
    n_events = len(find_events(events))
    if n_events <= settings.validation:
        raise InputError(
            f"{events}: {n_events} events, of which {settings.validation} are held back to choose "
            f"radius, cuts and quality; give more events"
        )
    make_folder(out)
    with FolderLock() as lock:
        lock.take(out)
        PipelineTraining(events, out, settings, command).run()


def _launcher(line: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise InputError(f"--launcher {line!r}: {error}; close the quotes") from None
    if not words or shutil.which(words[0]) is None:
        raise InputError(f"--launcher {line!r}: no such program; write it as in a shell")
    return words
