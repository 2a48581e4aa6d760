"""The files of acorn's graphs in a folder, and the events that they are of."""

import re
from pathlib import Path

from bigtrk.errors import InputError

ENDINGS = (".pyg", ".pyg.gz")
_EVENT = re.compile(r"(?:.*_)?(event\d{1,18})(?:-graph)?")


def graph_files(source: Path) -> list[Path]:
    """Lists acorn's graphs in a folder and in those below it, or the one file that is named.

    Raises:
        InputError: there are none.
    """
    if source.is_file():
        return [source]
    files = sorted(path for path in source.rglob("*") if path.name.endswith(ENDINGS))
    if not files:
        raise InputError(
            f"{source}: holds no .pyg or .pyg.gz files; name the folder of a stage of acorn"
        )
    return files


def events_of(files: list[Path]) -> dict[str, Path]:
    """Returns the file of each event: event000001000 of PREFIX_event000001000-graph.pyg.gz.

    Raises:
        InputError: two files are of one event.
    """
    events: dict[str, Path] = {}
    for file in files:
        stem = file.name.removesuffix(".gz").removesuffix(".pyg")
        named = _EVENT.fullmatch(stem)
        other = events.setdefault(named[1] if named else stem, file)
        if other != file:
            raise InputError(
                f"{file}: is of the same event as {other}; import their folders one by one, to a "
                f"folder each"
            )
    return events
