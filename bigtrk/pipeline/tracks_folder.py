"""A folder of tracks: a file of each event's, and one TrackML submission of all."""

from collections.abc import Callable, Iterator, Sequence
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
from bigtrk.pipeline.passage import Passage
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import event_number, open_tracks, write_submission, write_tracks
from bigtrk.tracks.overlaps import Ids

SUBMISSION = "submission.csv"
# Makes an event's tracks: hit_id [N], track of each hit [N], and what it took.
MakeTracks = Callable[[str], tuple[Ids, Ids, Passage]]


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


def fill_tracks(out: Path, names: Sequence[str], make: MakeTracks, what: str) -> TracksMade:
    """Writes to `out` a file of the tracks of each event, and one TrackML submission of all. An
    event that cannot be read is named, and the others are done.

    Raises:
        InputError: a name has no number by which a submission could tell it, or two have the same;
            nothing is made then. Or the disk refuses.
    """
    _check_numbers(names)
    made = TracksMade()
    make_folder(out)
    with disk_errors():
        for name in follow(names, len(names), what):
            try:
                _write(out, name, make(name), made)
            except InputError as error:
                complain(f"bigtrk: {error}")
                made.failed[name] = str(error)
        write_submission(out / SUBMISSION, _written(out, made))
    return made


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


def _check_numbers(names: Sequence[str]) -> None:
    known: dict[int, str] = {}
    for name in names:
        other = known.setdefault(event_number(name), name)
        if other != name:
            raise InputError(
                f"{other} and {name} have the same number, by which tracks tell events; rename the "
                f"files of one"
            )


def _write(out: Path, name: str, found: tuple[Ids, Ids, Passage], made: TracksMade) -> None:
    hit_id, tracks, passage = found
    write_tracks(out, name, hit_id, tracks)
    for note in passage.notes:
        complain(f"{name}: {note}")
    made.hits[name] = len(tracks)
    made.tracks[name] = int(tracks.max(initial=NO_TRACK)) + 1
    made.passages[name] = passage


def _written(out: Path, made: TracksMade) -> Iterator[tuple[str, Ids, Ids]]:
    """Reads back what was written: many events' tracks need not fit memory."""
    for name in made.passages:
        source = open_tracks(out / f"{name}-tracks.parquet")
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
