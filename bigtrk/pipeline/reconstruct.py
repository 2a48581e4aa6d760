"""`bigtrk reconstruct` turns hits into tracks; `bigtrk infer` turns graphs into tracks.

Ranks share the events, and write all tracks to one folder.
"""

import math
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bigtrk.console import complain, follow, say
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError, RankError, number_of
from bigtrk.events.reader import event_sizes, read_event
from bigtrk.graphs.builders.build_folder import LONGEST_TABLE
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.parallel.collectives import check_agreement, gather_items, on_first_rank, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import WHOLE, RoutedEvent, lay_out
from bigtrk.parallel.world import make_world
from bigtrk.pipeline.models import load_scorer
from bigtrk.pipeline.options import MakingOptions
from bigtrk.pipeline.stages import Passage, load_pipeline
from bigtrk.pipeline.track_making import TrackMaker
from bigtrk.tracks.builders.builder import NO_TRACK, TrackBuilder
from bigtrk.tracks.files import (
    TRACKS_FILE,
    names_by_number,
    open_tracks,
    tracks_path,
    write_submission,
    write_tracks,
)
from bigtrk.tracks.fits import parameters_path
from bigtrk.tracks.matching import Ids
from bigtrk.training.spill import HeldSectors, SpillFolder, spill_scoring

SUBMISSION = "submission.csv"


@dataclass
class TracksMade:
    """The outcome by event: hits, tracks (numbers) and passage; failed: why an event failed."""

    hits: dict[str, int] = field(default_factory=dict)
    tracks: dict[str, int] = field(default_factory=dict)
    passages: dict[str, Passage] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Returns what `--json` prints: per event counts, seconds and notes; failures."""
        events = {
            name: {
                "hits": self.hits[name],
                "tracks": self.tracks[name],
                "seconds": passage.seconds,
                "edges": passage.edges,
                "notes": passage.notes,
            }
            for name, passage in self.passages.items()
        }
        return {"events": events, "failed": self.failed}


def in_order(names: Iterable[str], shares: Sequence[TracksMade]) -> TracksMade:
    """Merges the outcomes of all ranks, with events in the order of `names`."""
    joined = TracksMade()
    for kind, own in vars(joined).items():
        found = ChainMap(*(getattr(share, kind) for share in shares))
        own.update({name: found[name] for name in names if name in found})
    return joined


def make_folder(out: Path) -> None:
    """Creates a folder, unless it exists; InputError if it cannot be created."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made ({error.strerror}); name another folder") from None


def clear_folder(out: Path, names: Collection[str]) -> None:
    """Creates folder `out` and removes tracks of `names`; InputError if it holds other tracks."""
    make_folder(out)
    files = {tracks_path(out, name) for name in names}
    others = sorted({file for file in out.iterdir() if TRACKS_FILE.fullmatch(file.name)} - files)
    if others:
        raise InputError(
            f"{out}: holds tracks of other events, such as {others[0].name}; name another folder"
        )
    if replaced := sum(file.exists() for file in files):
        complain(f"{out}: replacing the tracks of {number_of(replaced, 'event')} that were there")
    with disk_errors():
        fits = (parameters_path(out, name) for name in names)  # of former tracks
        for file in (out / SUBMISSION, *files, *fits):
            file.unlink(missing_ok=True)


def show_tracks(made: TracksMade, console: Console) -> None:
    """Prints a row for each of the first events, and the mean seconds of each stage."""
    passages = made.passages
    if not passages:
        return
    first = next(iter(passages.values()))
    hidden = len(passages) - LONGEST_TABLE
    caption = f"and {hidden} more; --json has them all" if hidden > 0 else None
    table = Table(box=SIMPLE, padding=0, caption=caption, caption_justify="left")
    columns = ("event", "hits", *(f"edges, {stage}" for stage in first.edges), "tracks", "s")
    for heading in columns:
        table.add_column(heading, justify="left" if heading == "event" else "right")
    for name, passage in list(passages.items())[:LONGEST_TABLE]:
        numbers = (made.hits[name], *passage.edges.values(), made.tracks[name])
        seconds = sum(passage.seconds.values())
        table.add_row(name, *(f"{number:,}" for number in numbers), f"{seconds:.2f}")
    console.print(table)
    means = {stage: fmean(x.seconds[stage] for x in passages.values()) for stage in first.seconds}
    told = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in means.items())
    say(f"seconds per event: {told}")


# Makes an event's tracks: hit_id [N], track of each hit [N], and the Passage. Given None, the rank
# takes part in collective work only.
MakeTracks = Callable[[str | None], tuple[Ids, Ids, Passage] | None]


def fill_tracks(
    out: Path, sizes: Mapping[str, float], make: MakeTracks, what: str, ranks: Ranks
) -> TracksMade:
    """Writes to `out` a file with each event's tracks, and one TrackML submission of all. Events
    that cannot be read are named in the outcome, and the others are done. Collective.

    sizes: by event, a rough measure of work, by which ranks share the events. All ranks return the
    outcome of all events, in one order, the same on any number of ranks.

    Raises InputError on all ranks: before any event, if a name has no number for a submission, two
    names have the same, or `out` has tracks of other events; later, if the disk refuses.
    """
    names_by_number(sizes)
    on_first_rank(lambda: clear_folder(out, sizes))
    mine, names, refused = TracksMade(), share_of(sizes, ranks), list[InputError]()
    for own in follow(names, len(names), what) if ranks.is_first else names:
        # A rank whose disk refused a file makes no more tracks, but takes part in collective work.
        name = None if refused else own
        try:
            found = make(name)
        except RankError:
            raise
        except InputError as error:
            assert name is not None, "a rank without an event fails in none"
            complain(f"bigtrk: {error}")
            mine.failed[name] = str(error)
            continue
        if name is None or found is None:
            continue
        hit_id, tracks, passage = found
        try:
            with disk_errors():
                write_tracks(out, name, hit_id, tracks)
        except InputError as error:
            refused.append(error)
            continue
        for note in passage.notes:
            complain(f"{name}: {note}")
        mine.hits[name] = len(tracks)
        mine.tracks[name] = int(tracks.max(initial=NO_TRACK)) + 1
        mine.passages[name] = passage

    def check() -> None:
        for error in refused:
            raise error

    together(check)
    made = in_order(sizes, gather_items(mine))

    def submit() -> None:
        with disk_errors():
            write_submission(out / SUBMISSION, _written(out, made.passages))

    on_first_rank(submit)
    return made


def _written(out: Path, names: Iterable[str]) -> Iterator[tuple[str, Ids, Ids]]:
    """Reads the written tracks of events: yields name, ids of hits, and the hits' tracks."""
    for name in names:
        source = open_tracks(tracks_path(out, name))
        [number] = source.events
        found = source.read(number)
        yield name, found.hit_id, found.track_id


def share_of(sizes: Mapping[str, float], ranks: Ranks) -> list[str | None]:
    """Returns this rank's events, largest first, padded by None to the same length on all ranks."""
    names = list(sizes)
    events = [RoutedEvent(i, WHOLE, size) for i, size in enumerate(sizes.values())]
    mine = [step[ranks.rank] for step in lay_out(events, ranks.world_size).micro_steps]
    return [None if one is None else names[one.event] for one in mine]


def reconstruct_folder(
    folder: Path,
    events: Path,
    out: Path,
    options: MakingOptions,
    ranks: Ranks,
    threshold: float | None = None,
    spill: SpillFolder | None = None,
) -> TracksMade:
    """Reconstructs each event in `events` with the pipeline in `folder`, and writes tracks to `out`
    as `fill_tracks` does. threshold: least quality of a track; by default the pipeline's. spill:
    folder for edges between the classifier's layers that do not fit in memory. Collective.

    Raises InputError, on all ranks, if the threshold is not from 0 to 1, a folder cannot be read,
    ranks find different models, a spilled graph has no limit, or as `spill_scoring`, `fill_tracks`.
    """
    _check_apart(out, events, folder)
    pipeline = together(lambda: load_pipeline(folder, ranks.device, options.precision))
    if threshold is not None:
        pipeline = replace(pipeline, builder=replace(pipeline.builder, threshold=threshold))
    check_agreement({f"{stage} in {folder}": one for stage, one in pipeline.digests.items()})
    if spill:
        most = options.max_edges
        if most is None:
            raise InputError(
                f"{spill}: needs a limit of edges per rank, to check the space on the disk; add "
                f"--max-edges N (an event with more edges on a rank fails)"
            )
        scored = {f"a graph at --max-edges {most}": HeldSectors(most)}
        together(lambda: spill_scoring(pipeline.classifier.model, spill, ranks, scored))

    def graph(name: str) -> tuple[EventGraph, Passage]:
        return pipeline.graph(read_event(events, name, with_truth=False))

    world = make_world(ranks, [ranks.world_size])
    maker = TrackMaker(graph, pipeline.classifier, pipeline.builder, options, world)
    sizes = on_first_rank(lambda: event_sizes(events))
    return fill_tracks(out, sizes, maker, "reconstructing", ranks)


def _check_apart(out: Path, given: Path, trained: Path) -> None:
    """Raises InputError if `out` is the folder of the input, or lies in the model's (`trained`)."""
    if out.resolve() == given.resolve():
        raise InputError(f"{out}: is the folder of the input; name another folder for the tracks")
    if out.resolve().is_relative_to(trained.resolve()):
        raise InputError(f"{out}: must not lie in {trained}, a model's folder; name another folder")


def infer_folder(
    run: Path,
    graphs: Path,
    out: Path,
    builder: TrackBuilder,
    options: MakingOptions,
    ranks: Ranks,
    spill: SpillFolder | None = None,
) -> TracksMade:
    """Scores each graph in `graphs` with the edge model of `run`, makes tracks with `builder`, and
    writes them to `out`. spill, and the errors raised: as of `reconstruct_folder`. Collective.
    """
    _check_apart(out, graphs, run)
    scorer = together(lambda: load_scorer(run, ranks.device, options.precision))
    check_agreement({f"model in {run}": scorer.digest})
    folder = together(lambda: GraphFolder(graphs))

    def graph(name: str) -> tuple[EventGraph, Passage]:
        found = folder.read(name)
        if found.hit_id is None:
            raise InputError(f"{name} in {graphs}: has no hit ids; build it from events")
        return found, Passage(edges={"graph": found.n_edges})

    maker = TrackMaker(graph, scorer, builder, options, make_world(ranks, [ranks.world_size]))
    records = {name: folder.record(name) for name in folder.events}
    if spill and records:
        most = options.max_edges or math.inf
        scored = {name: HeldSectors(min(one["edges"], most)) for name, one in records.items()}
        together(lambda: spill_scoring(scorer.model, spill, ranks, scored))
    sizes = {name: record["nodes"] + record["edges"] for name, record in records.items()}
    return fill_tracks(out, sizes, maker, "making tracks", ranks)
