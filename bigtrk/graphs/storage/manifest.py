"""The manifest of a folder of graphs or sectors: its content and how it was made.

Each file carries its own record, so the manifest can be assembled again at any time, by
whichever of several tasks finishes last. Its last entry is a digest of all before it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bigtrk.disk.files import by_numbers, read_bytes, seal, unseal, write_atomically
from bigtrk.errors import InputError, reason
from bigtrk.graphs.storage.tensor_files import SectionFile
from bigtrk.machine import software

MANIFEST = "manifest.json"
SUFFIX = ".safetensors"
ORIGIN = (
    "origin"  # in a record: digest of the event, where another than made_from's source tells it
)
WINDOWS = "windows.yaml"  # beside the graphs that were built with them


def file_of(folder: Path, event: str) -> Path:
    """Returns the path of the file of `event`.

    Raises:
        InputError: the name is not one of a file in this folder: it would lead elsewhere.
    """
    if not event or "/" in event or not event.isprintable():
        raise InputError(f"{folder}: {event!r} is no name of an event; leave path separators out")
    return folder / f"{event}{SUFFIX}"


def describe(opened: SectionFile) -> dict[str, Any]:
    """Returns a file's entry in the manifest: its own record, and its name, bytes and digests."""
    return {
        **opened.record,
        "file": opened.path.name,
        "bytes": opened.path.stat().st_size,
        "digests": opened.digests,
    }


def write_manifest(
    folder: Path, kind: str, parameters: dict[str, Any], events: Iterable[str]
) -> dict[str, Any]:
    """Assembles the manifest of `events` from their files' records and writes it.

    `kind` is "graphs" or "sectors".
    """
    files = {}
    for event in sorted(events, key=by_numbers):
        files[event] = describe(SectionFile(file_of(folder, event)))
    manifest = {
        "format": f"bigtrk {kind}",
        "software": software(),
        "parameters": parameters,
        "events": files,
    }
    content = seal(manifest)
    write_atomically(folder / MANIFEST, lambda temporary: temporary.write_bytes(content))
    return manifest


def read_manifest(folder: Path) -> tuple[str, dict[str, Any]]:
    """Reads the kind ("graphs" or "sectors") and content of a folder's manifest.

    Raises:
        InputError: `folder` is a file, or it or its manifest is missing, damaged, or of another
            program or version.
    """
    if folder.is_file():
        raise InputError(f"{folder}: is a file; name the folder of graphs or sectors")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; make one with 'bigtrk build EVENTS {folder}'")
    if not (folder / MANIFEST).exists():
        raise InputError(
            f"{folder}: holds no {MANIFEST}; make graphs with 'bigtrk build EVENTS {folder}' "
            f"or sectors with 'python -m partition GRAPHS {folder}'"
        )
    manifest = _unsealed(folder / MANIFEST)
    kind = str(manifest.get("format", ""))
    if kind not in ("bigtrk graphs", "bigtrk sectors"):
        raise InputError(
            f"{folder / MANIFEST}: not a manifest of bigtrk; name a folder that bigtrk made"
        )
    events = manifest.get("events")
    if not isinstance(events, dict) or not all(
        isinstance(entry, dict) for entry in events.values()
    ):
        raise InputError(f"{folder / MANIFEST}: names no events; make the folder again")
    for event in events:
        file_of(folder, event)
    return kind.removeprefix("bigtrk "), manifest


def _unsealed(path: Path) -> dict[str, Any]:
    raw = read_bytes(path)
    try:
        return unseal(raw)
    except ValueError as error:
        raise InputError(
            f"{path}: damaged, of an older version, or not a manifest of bigtrk ({reason(error)}); "
            f"if it is bigtrk's, remove it and make the folder again: what is whole is kept"
        ) from None
