"""A folder of tracks: a file of each event's, and one TrackML submission of all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bigtrk.console import say
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError
from bigtrk.pipeline.passage import Passage
from bigtrk.tracks.files import (
    TRACKS_FILE,
    event_number,
    open_tracks,
    tracks_path,
    write_submission,
)
from bigtrk.tracks.matching import Ids

SUBMISSION = "submission.csv"


@dataclass
class TracksMade:
    """Tells by name what became of a folder's events: of each that has tracks its numbers of hits
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


def in_order(names: Sequence[str], shares: Sequence[TracksMade]) -> TracksMade:
    """Joins what became of the ranks' events, in the order of their names."""
    joined = TracksMade()
    for field_ in fields(TracksMade):
        found = {k: v for share in shares for k, v in getattr(share, field_.name).items()}
        getattr(joined, field_.name).update({name: found[name] for name in names if name in found})
    return joined


def submit(out: Path, made: TracksMade) -> None:
    """Writes one TrackML submission of the tracks in `out` of all events.

    Raises:
        InputError: the disk refuses, or files of tracks are not what they were.
    """
    with disk_errors():
        write_submission(out / SUBMISSION, _written(out, made))


def make_folder(out: Path) -> None:
    """Makes a folder, unless it is there.

    Raises:
        InputError: it is a file, or cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{out}: cannot be made a folder ({error.strerror}); name another"
        ) from None


def clear_folder(out: Path, names: Sequence[str]) -> None:
    """Removes earlier tracks of events from a folder: one that fails now is not to keep them.

    Raises:
        InputError: the folder holds tracks of other events, or the disk refuses.
    """
    files = {tracks_path(out, name) for name in names}
    others = sorted({file for file in out.iterdir() if TRACKS_FILE.fullmatch(file.name)} - files)
    if others:
        raise InputError(
            f"{out}: holds tracks of other events, such as {others[0].name}; name another folder"
        )
    with disk_errors():
        for file in (out / SUBMISSION, *files):
            file.unlink(missing_ok=True)


def check_numbers(names: Sequence[str]) -> None:
    """Checks that events can be told by the numbers in their names.

    Raises:
        InputError: a name has none, or two have the same.
    """
    known: dict[int, str] = {}
    for name in names:
        other = known.setdefault(event_number(name), name)
        if other != name:
            raise InputError(
                f"{other} and {name} have the same number, by which tracks tell events; rename the "
                f"files of one"
            )


def _written(out: Path, made: TracksMade) -> Iterator[tuple[str, Ids, Ids]]:
    """Reads back what was written: many events' tracks need not fit memory."""
    for name in made.passages:
        source = open_tracks(tracks_path(out, name))
        [number] = source.events
        found = source.read(number)
        yield name, found.hit_id, found.track_id


def show_tracks(made: TracksMade, console: Console) -> None:
    """Prints a line for each event, and the mean seconds of each stage."""
    passages = made.passages
    edges = next((list(passage.edges) for passage in passages.values()), [])
    table = Table(box=SIMPLE, padding=0)
    columns = ("event", "hits", *(f"edges, {stage}" for stage in edges), "tracks", "s")
    for heading in columns:
        table.add_column(heading, justify="left" if heading == "event" else "right")
    for name, passage in passages.items():
        numbers = (made.hits[name], *passage.edges.values(), made.tracks[name])
        seconds = sum(passage.seconds.values())
        table.add_row(name, *(f"{number:,}" for number in numbers), f"{seconds:.2f}")
    if passages:
        console.print(table)
        stages = next(iter(passages.values())).seconds
        means = {stage: fmean(one.seconds[stage] for one in passages.values()) for stage in stages}
        told = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in means.items())
        say(f"seconds per event: {told}")
