"""`bigtrk reconstruct`: hits to tracks; `bigtrk infer`: graphs to tracks."""

import math
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.events.reader import event_sizes, read_event
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.parallel.collectives import check_agreement, on_first_rank, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import make_world
from bigtrk.pipeline.hit_notes import described_modules, description_notes
from bigtrk.pipeline.options import MakingOptions
from bigtrk.pipeline.passage import Passage
from bigtrk.pipeline.scoring import load_scorer
from bigtrk.pipeline.sharing.shares import fill_tracks
from bigtrk.pipeline.sharing.track_making import TrackMaker
from bigtrk.pipeline.stages import load_pipeline
from bigtrk.pipeline.tracks_folder import TracksMade
from bigtrk.tracks.builders.builder import TrackBuilder
from bigtrk.training.steps.spill import HeldSectors, SpillFolder, spill_scoring


def reconstruct_folder(
    folder: Path,
    events: Path,
    out: Path,
    options: MakingOptions,
    ranks: Ranks,
    threshold: float | None = None,
    spill: SpillFolder | None = None,
) -> TracksMade:
    """Sends each event of `events` through the pipeline in `folder`, and writes their tracks to
    `out`, as `fill_tracks`. threshold: of the quality of tracks; the pipeline's own without it.
    Edges between the classifier's layers that the memory has no room for are in files of `spill`,
    if it is given. Collective.

    Raises:
        InputError: on all ranks, the threshold is not between 0 and 1, the pipeline or the folder
            of events cannot be read, ranks find different pipelines, edges are spilled though no
            limit says how many a graph has, or as of `spill_scoring` or `fill_tracks`.
    """
    _check_apart(out, events, folder)
    pipeline = together(lambda: load_pipeline(folder, ranks.device, options.precision))
    if threshold is not None:
        pipeline = pipeline.with_threshold(threshold)
    check_agreement({f"{stage} in {folder}": one for stage, one in pipeline.digests.items()})
    described = together(lambda: described_modules(events))
    if spill:
        most = _most_edges(options, spill)
        scored = {f"a graph at --max-edges {most}": HeldSectors(most)}
        together(lambda: spill_scoring(pipeline.classifier.model, spill, ranks, scored))

    def graph(name: str) -> tuple[EventGraph, Passage]:
        event = read_event(events, name, with_truth=False)
        made, passage = pipeline.graph(event)
        passage.notes.extend(description_notes(event.hits, described))
        return made, passage

    world = make_world(ranks, [ranks.world_size])
    maker = TrackMaker(graph, pipeline.classifier, pipeline.builder, options, world)
    sizes = on_first_rank(lambda: event_sizes(events))
    return fill_tracks(out, sizes, maker, "reconstructing", ranks)


def _most_edges(options: MakingOptions, spill: SpillFolder) -> int:
    """Returns the edges that the classifier is given at once, for which a folder needs space."""
    if options.max_edges is None:
        raise InputError(
            f"{spill}: how many edges a pipeline makes is not known beforehand; add --max-edges N: "
            f"space is checked for that many, and a graph with more on a rank is refused"
        )
    return options.max_edges


def _check_apart(out: Path, given: Path, trained: Path) -> None:
    """Refuses to write tracks among what they are made of, or into what was `trained`."""
    if out.resolve() == given.resolve():
        raise InputError(f"{out}: is what tracks are made of; name another folder for them")
    if out.resolve().is_relative_to(trained.resolve()):
        raise InputError(
            f"{out}: belongs to {trained}, which a training may remove; name another folder"
        )


def infer_folder(
    run: Path,
    graphs: Path,
    out: Path,
    builder: TrackBuilder,
    options: MakingOptions,
    ranks: Ranks,
    spill: SpillFolder | None = None,
) -> TracksMade:
    """Scores each graph of folder `graphs` by the edge model of `run`, makes tracks by a builder,
    and writes them to `out`, as `fill_tracks`. Edges between layers that the memory has no room for
    are in files of `spill`, if it is given. Collective.

    Raises:
        InputError: on all ranks, the run or the folder of graphs cannot be read, ranks find
            different runs, or as of `spill_scoring` or `fill_tracks`.
    """
    _check_apart(out, graphs, run)
    scorer = together(lambda: load_scorer(run, ranks.device, options.precision))
    check_agreement({f"model in {run}": scorer.digest})
    folder = together(lambda: GraphFolder(graphs))

    def graph(name: str) -> tuple[EventGraph, Passage]:
        found = folder.read(name)
        if found.hit_id is None:
            raise InputError(
                f"{name} in {graphs}: knows no ids of its hits, by which tracks list them"
            )
        return found, Passage(edges={"graph": found.n_edges})

    maker = TrackMaker(graph, scorer, builder, options, make_world(ranks, [ranks.world_size]))
    records = {name: folder.record(name) for name in folder.events}
    if spill and records:
        most = options.max_edges or math.inf
        scored = {name: HeldSectors(min(one["edges"], most)) for name, one in records.items()}
        together(lambda: spill_scoring(scorer.model, spill, ranks, scored))
    sizes = {name: record["nodes"] + record["edges"] for name, record in records.items()}
    return fill_tracks(out, sizes, maker, "making tracks", ranks)
