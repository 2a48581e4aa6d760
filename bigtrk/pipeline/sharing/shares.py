"""The events of a folder shared by ranks: each writes the tracks of its own, one those of all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bigtrk.console import complain, follow
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError, RankError
from bigtrk.parallel.collectives import gather_items, on_first_rank, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import WHOLE, RoutedEvent, lay_out
from bigtrk.pipeline.passage import Passage
from bigtrk.pipeline.tracks_folder import (
    TracksMade,
    check_numbers,
    clear_folder,
    in_order,
    make_folder,
    submit,
)
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import write_tracks
from bigtrk.tracks.matching import Ids

# Makes an event's tracks: hit_id [N], track of each hit [N], and what it took. Without an event
# (None) the rank takes part in what ranks do together.
MakeTracks = Callable[[str | None], tuple[Ids, Ids, Passage] | None]


def fill_tracks(
    out: Path, sizes: Mapping[str, float], make: MakeTracks, what: str, ranks: Ranks
) -> TracksMade:
    """Writes to `out` a file of the tracks of each event, and one TrackML submission of all. An
    event that cannot be read is named, and the others are done. Collective.

    sizes: by event, about how much there is to do; each rank takes a share of the events. All ranks
    return what became of all events, in their order, which is the same on any number of ranks.

    Raises:
        InputError: on all ranks, a name has no number by which a submission could tell it, or two
            have the same, or `out` has tracks of other events; nothing is made then. Or the disk
            refuses.
    """
    check_numbers(list(sizes))
    on_first_rank(lambda: _prepare(out, list(sizes)))
    share = _Share(out, make)
    names = share_of(sizes, ranks)
    for name in follow(names, len(names), what) if ranks.is_first else names:
        share.take(name)
    together(share.check)
    made = in_order(list(sizes), gather_items(share.made))
    on_first_rank(lambda: submit(out, made))
    return made


def _prepare(out: Path, names: Sequence[str]) -> None:
    make_folder(out)
    clear_folder(out, names)


def share_of(sizes: Mapping[str, float], ranks: Ranks) -> list[str | None]:
    """Returns the events of this rank, the largest first, so that all ranks end at about the same
    time; on all ranks as many, None for those that are missing.
    """
    names = list(sizes)
    events = [RoutedEvent(i, WHOLE, size) for i, size in enumerate(sizes.values())]
    mine = [step[ranks.rank] for step in lay_out(events, ranks.world_size).micro_steps]
    return [None if one is None else names[one.event] for one in mine]


@dataclass
class _Share:
    """The events that this rank takes. refused: the error by which its disk refused a file: it then
    makes no more tracks of its own, but takes part in what others wait for.
    """

    out: Path
    make: MakeTracks
    made: TracksMade = field(default_factory=TracksMade)
    refused: InputError | None = None

    def take(self, name: str | None) -> None:
        name = None if self.refused else name
        try:
            found = self.make(name)
        except RankError:
            raise
        except InputError as error:
            assert name is not None, "a rank without an event fails in none"
            complain(f"bigtrk: {error}")
            self.made.failed[name] = str(error)
            return
        if name is not None and found is not None:
            self._write(name, found)

    def _write(self, name: str, found: tuple[Ids, Ids, Passage]) -> None:
        hit_id, tracks, passage = found
        try:
            with disk_errors():
                write_tracks(self.out, name, hit_id, tracks)
        except InputError as error:
            self.refused = error
            return
        for note in passage.notes:
            complain(f"{name}: {note}")
        self.made.hits[name] = len(tracks)
        self.made.tracks[name] = int(tracks.max(initial=NO_TRACK)) + 1
        self.made.passages[name] = passage

    def check(self) -> None:
        if self.refused:
            raise self.refused
