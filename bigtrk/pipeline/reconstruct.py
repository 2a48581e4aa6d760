"""`bigtrk reconstruct`: hits to tracks; `bigtrk infer`: graphs to tracks."""

from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.events.reader import find_events, read_event
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.pipeline.hit_notes import described_modules, description_notes
from bigtrk.pipeline.passage import Passage
from bigtrk.pipeline.scoring import load_scorer
from bigtrk.pipeline.stages import classified, load_pipeline
from bigtrk.pipeline.tracks_folder import TracksMade, fill_tracks
from bigtrk.tracks.builders.names import BuilderName
from bigtrk.tracks.builders.registry import make_builder
from bigtrk.tracks.overlaps import Ids


def reconstruct_folder(folder: Path, events: Path, out: Path, min_hits: int) -> TracksMade:
    """Sends each event of `events` through the pipeline in `folder`, and writes their tracks to
    `out`, as `fill_tracks`.

    Raises:
        InputError: the pipeline or the folder of events cannot be read, or as of `fill_tracks`.
    """
    _check_apart(out, events)
    pipeline = load_pipeline(folder)
    described = described_modules(events)

    def make(name: str) -> tuple[Ids, Ids, Passage]:
        event = read_event(events, name, with_truth=False)
        tracks, passage = pipeline.tracks(event, min_hits)
        passage.notes.extend(description_notes(event.hits, described))
        return event.hits["hit_id"].astype("int64"), tracks, passage

    return fill_tracks(out, find_events(events), make, "reconstructing")


def _check_apart(out: Path, given: Path) -> None:
    """Refuses to write tracks among what they are made of."""
    if out.resolve() == given.resolve():
        raise InputError(f"{out}: is what tracks are made of; name another folder for them")


def infer_folder(
    run: Path,
    graphs: Path,
    out: Path,
    builder: BuilderName,
    score_cut: float | None,
    min_hits: int,
) -> TracksMade:
    """Scores each graph of folder `graphs` by the edge model of `run`, makes tracks by a builder,
    and writes them to `out`, as `fill_tracks`.

    score_cut: as of `make_builder`.

    Raises:
        InputError: the run or the folder of graphs cannot be read, or as of `fill_tracks`.
    """
    _check_apart(out, graphs)
    scorer, make_tracks, folder = (
        load_scorer(run),
        make_builder(builder, score_cut),
        GraphFolder(graphs),
    )

    def make(name: str) -> tuple[Ids, Ids, Passage]:
        passage = Passage()
        graph = folder.read(name)
        if graph.hit_id is None:
            raise InputError(
                f"{name} in {graphs}: knows no ids of its hits, by which tracks list them"
            )
        passage.edges["graph"] = graph.n_edges
        with passage.stage("classifier"):
            scored = classified(graph, scorer)
        with passage.stage("tracks"):
            tracks = make_tracks(scored, min_hits)
        return graph.hit_id.numpy(), tracks, passage

    return fill_tracks(out, folder.events, make, "making tracks")
