"""Tracks on disk, and the events that they are of."""

from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.events.reader import find_events
from bigtrk.tracks.storage.files import TrackSource, event_number


def events_by_number(source: TrackSource, events: Path) -> dict[int, str]:
    """Returns the names of all events of a folder or zip archive by their numbers, ascending.

    Raises:
        InputError: two have one number, or `source` has tracks of an event that is not there.
    """
    names: dict[int, str] = {}
    for name in find_events(events):
        other = names.setdefault(event_number(name), name)
        if other != name:
            raise InputError(
                f"{events}: {other} and {name} have one number, by which tracks tell events; "
                "rename the files of one of them"
            )
    for number, where in source.events.items():
        if number not in names:
            raise InputError(
                f"{where}: these are tracks of event {number}, which {events} does not hold; name "
                "the folder or zip archive that does, or remove them"
            )
    return dict(sorted(names.items()))
