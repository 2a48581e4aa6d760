"""Hits to tracks: every event of a folder through a trained pipeline."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bigtrk.console import complain, follow, say
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError
from bigtrk.events.reader import find_events, read_event
from bigtrk.pipeline.stages import Passage, Pipeline, load_pipeline
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import event_number, open_tracks, write_submission, write_tracks
from bigtrk.tracks.overlaps import Ids

SUBMISSION = "submission.csv"


@dataclass
class Reconstruction:
    """What became of a folder's events, by name: of each that was reconstructed its numbers of hits
    and tracks and its way through the stages; of each that failed, why.
    """

    hits: dict[str, int] = field(default_factory=dict)
    tracks: dict[str, int] = field(default_factory=dict)
    passages: dict[str, Passage] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Returns what `--json` prints."""
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


def reconstruct_folder(folder: Path, events: Path, out: Path, min_hits: int) -> Reconstruction:
    """Sends each event of `events` through the pipeline in `folder`; writes a file of each one's
    tracks to `out`, and one TrackML submission of all. An event that cannot be read is named, and
    the others are done.

    Raises:
        InputError: the pipeline or the folder of events cannot be read, or the disk refuses.
    """
    pipeline = load_pipeline(folder)
    names = find_events(events)
    _check_numbers(events, names)
    made = Reconstruction()
    with disk_errors():
        out.mkdir(parents=True, exist_ok=True)
        for name in follow(names, len(names), "reconstructing"):
            try:
                _reconstruct(pipeline, events, out, name, min_hits, made)
            except InputError as error:
                complain(f"bigtrk: {error}")
                made.failed[name] = str(error)
        write_submission(out / SUBMISSION, _written(out, made))
    return made


def _check_numbers(events: Path, names: list[str]) -> None:
    """Checks before anything is computed that the events can be told in a submission.

    Raises:
        InputError: a name has no number, or two have the same.
    """
    known: dict[int, str] = {}
    for name in names:
        other = known.setdefault(event_number(name), name)
        if other != name:
            raise InputError(
                f"{events}: {other} and {name} have the same number, by which tracks tell events; "
                f"rename the files of one"
            )


def _reconstruct(
    pipeline: Pipeline, events: Path, out: Path, name: str, min_hits: int, made: Reconstruction
) -> None:
    event = read_event(events, name, with_truth=False)
    tracks, passage = pipeline.tracks(event, min_hits)
    write_tracks(out, name, event.hits["hit_id"].astype("int64"), tracks)
    for note in passage.notes:
        complain(f"{name}: {note}")
    made.hits[name] = len(tracks)
    made.tracks[name] = int(tracks.max(initial=NO_TRACK)) + 1
    made.passages[name] = passage


def _written(out: Path, made: Reconstruction) -> Iterator[tuple[str, Ids, Ids]]:
    """Reads back what was written: many events' tracks need not fit memory."""
    for name in made.passages:
        source = open_tracks(out / f"{name}-tracks.parquet")
        [number] = source.events
        found = source.read(number)
        yield name, found.hit_id, found.track_id


def show_reconstruction(made: Reconstruction, console: Console) -> None:
    """Prints a line for each event, and the mean seconds of each stage."""
    table = Table(box=SIMPLE, padding=0)
    for heading in ("event", "hits", "edges", "filtered", "tracks", "s"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "event" else "right")
    for name, passage in made.passages.items():
        numbers = (made.hits[name], *passage.edges.values(), made.tracks[name])
        seconds = sum(passage.seconds.values())
        table.add_row(name, *(f"{number:,}" for number in numbers), f"{seconds:.2f}")
    console.print(table)
    if made.passages:
        passages = made.passages.values()
        stages = next(iter(passages)).seconds
        means = {stage: fmean(one.seconds[stage] for one in passages) for stage in stages}
        told = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in means.items())
        say(f"seconds per event: {told}")
