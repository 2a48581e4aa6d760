"""Reads a folder of event graphs one event at a time, and fills it from any source of graphs."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bigtrk.config import parse
from bigtrk.console import complain, follow, warn_once
from bigtrk.disk.folder_lock import LOCK, FolderLock
from bigtrk.errors import InputError, number_of
from bigtrk.events.event import Event
from bigtrk.graphs.event_graph import GRAPH, EventGraph, Section
from bigtrk.graphs.features import SCALES
from bigtrk.graphs.storage.event_folder import (
    MANIFEST,
    SUFFIX,
    WINDOWS,
    EventFolder,
    GraphEntry,
    GraphFolder,
    SectionFile,
    describe,
    digest,
    file_of,
    graph_of,
    particle_sections,
    read_manifest,
    write_manifest,
    write_sections,
)


def write_graph(
    folder: Path,
    graph: EventGraph,
    record: dict[str, Any],
    sections: Mapping[str, Section] | None = None,
) -> Path:
    """Writes one graph to its file in `folder`, atomically; returns the path. record: JSON-able
    facts, which `GraphFolder.record` gives back. sections: further sections of the file, by name.
    """
    features = (*graph.node_feature_names, *graph.edge_feature_names)
    described = {
        **record,
        "event": graph.name,
        "node_feature_names": list(graph.node_feature_names),
        "edge_feature_names": list(graph.edge_feature_names),
        "scales": {name: SCALES[name] for name in features if name in SCALES},
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
    }
    path = file_of(folder, graph.name)
    write_sections(path, {**graph_sections(graph), **(sections or {})}, described)
    return path


def graph_sections(graph: EventGraph) -> dict[str, Section]:
    """Returns the sections to store of a graph: "graph" and, if known, "particles"."""
    columns = {name: getattr(graph, name) for name in GRAPH}
    known = {name: column for name, column in columns.items() if column is not None}
    return {"graph": known} | particle_sections(graph.particles)


# A graph and its record; in the second form also sections for which a graph has no place.
Made = tuple[EventGraph, dict[str, Any]]
MadeWithMore = tuple[EventGraph, dict[str, Any], dict[str, Section]]


@dataclass(frozen=True)
class GraphToMake:
    """A graph that is still to be made, by `make`. source: digest of its input."""

    event: str
    source: str
    make: Callable[[], Made | MadeWithMore]


def fill_folder(
    out: Path,
    tasks: Iterable[GraphToMake],
    total: int,
    parameters: dict[str, Any],
    what: str,
    *,
    prefix: str = "",
    alone: bool = False,
) -> dict[str, Any]:
    """Makes each graph of `tasks` that `out` lacks, then writes and returns the manifest.

    A graph is kept if its file is whole and was made from the same source with the same
    `parameters`. The manifest lists all whole graphs of these parameters in `out`, by any call.

    total, what: number of tasks, and title, of the progress. prefix: starts graphs' names. alone:
    the manifest lists only this call's graphs; graphs of the same names are replaced, not refused.
    """
    _check_out(out)
    events = []
    for task in follow(tasks, total, what):
        event, made_from = f"{prefix}{task.event}", {**parameters, "source": task.source}
        if not _is_made(out, event, made_from, alone):
            graph, record, *sections = task.make()
            record = {**record, "made_from": made_from}
            write_graph(out, replace(graph, name=event), record, *sections)
        events.append(event)

    def options(record: dict[str, Any]) -> dict[str, Any]:
        made_from = record.get("made_from", {})
        return {key: value for key, value in made_from.items() if key != "source"}

    return finish_folder(out, GraphFolder, parameters, events, options, alone=alone)


def finish_folder(
    out: Path,
    kind: type[EventFolder],
    parameters: dict[str, Any],
    events: Iterable[str],
    options: Callable[[dict[str, Any]], Any],
    *,
    alone: bool = False,
) -> dict[str, Any]:
    """Writes and returns the manifest: `events` and, unless `alone`, all other whole files in `out`
    whose `options(record)` equal `parameters`; warns of files with other options. If two calls fill
    the folder at the same time, the later one lists the files of both.
    """
    out.mkdir(parents=True, exist_ok=True)
    with FolderLock() as lock:
        lock.take(out, patient=True)
        alike: set[str] = {*events}
        unlike: list[str] = []
        for path in [] if alone else sorted(out.glob(f"*{SUFFIX}")):
            try:
                opened = SectionFile(path)
                event = parse(kind.entry, describe(opened), str(path)).event
            except InputError:
                continue  # it is damaged, or of another kind
            if path == file_of(out, event) and options(opened.record) == parameters:
                alike.add(event)
            elif path == file_of(out, event):
                unlike.append(event)
        if unlike:
            complain(
                f"{out}: also holds {number_of(len(unlike), kind.kind[:-1])} made with other "
                f"options, such as {unlike[0]}, which {MANIFEST} does not list; make them again "
                f"with these options, or remove them"
            )
        return write_manifest(out, kind.kind, parameters, alike)


def check_same_event(path: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raises InputError if a new file (record `after`) would replace another event's (`before`)."""
    old, new = (record.get("made_from", {}).get("source") for record in (before, after))
    if old and new and old != new:
        event = path.name.removesuffix(SUFFIX)
        raise InputError(
            f"{path}: was made from another event that is also called {event}; to keep both, name "
            f"another folder or give these graphs other names, as 'bigtrk build EVENTS GRAPHS "
            f"--prefix b-' does; to replace this one, remove the file"
        )


def event_digest(event: Event) -> str:
    """Returns the SHA-256 of all names and values in an event's tables."""
    sha = hashlib.sha256(event.name.encode())
    for table in ("hits", "cells", "particles", "truth"):
        for name, column in sorted((getattr(event, table) or {}).items()):
            sha.update(f"{table} {name} {column.dtype} {len(column)}\n".encode())
            sha.update(column.tobytes())
    return sha.hexdigest()


def graph_digest(graph: EventGraph) -> str:
    """Returns the SHA-256 of a graph's name, tensors and column names."""
    sections = {name: digest(content) for name, content in graph_sections(graph).items()}
    facts = (graph.name, graph.node_feature_names, graph.edge_feature_names, sections)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def as_it_is(graph: EventGraph) -> tuple[EventGraph, dict[str, Any]]:
    """Returns a graph made elsewhere, unchanged, and a record with its purity, None if unknown."""
    purity = int(graph.y.sum()) / graph.n_edges if graph.y is not None and graph.n_edges else None
    return graph, {"purity": purity}


def _check_out(out: Path) -> None:
    """Raises InputError if `out` is a file, or a folder of anything but graphs."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder for the graphs")
    if (out / MANIFEST).exists():
        kind, _ = read_manifest(out)
        if kind != "graphs":
            raise InputError(f"{out}: holds {kind}; name another folder for the graphs")
    elif out.exists():
        names = (path.name for path in out.iterdir() if path.suffix != SUFFIX)
        others = [name for name in names if name not in (WINDOWS, LOCK) and name[0] != "."]
        if others:
            raise InputError(
                f"{out}: holds other files, such as {min(others)}; name another folder"
            )


def _is_made(out: Path, event: str, made_from: dict[str, Any], replaces: bool) -> bool:
    path = file_of(out, event)
    if not path.exists():
        return False
    try:
        opened = SectionFile(path)
        parse(GraphEntry, describe(opened), str(path))
        graph_of(opened)
        for section in opened.digests.keys() - {"graph", "particles"}:
            opened.read(section)
    except InputError:
        return False  # it is damaged, or no graph: made again
    if not replaces:
        check_same_event(path, opened.record, {"made_from": made_from})
    is_made = (opened.record["event"], opened.record.get("made_from", {})) == (event, made_from)
    if not is_made and not replaces:
        said = f"{out}: replacing graphs of other options or another version, such as {event}"
        warn_once(f"{out} made again", said)
    return is_made
