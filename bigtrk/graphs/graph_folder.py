"""A folder of event graphs: one file per event and a manifest."""

from pathlib import Path
from typing import Any

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph, ParticleTable
from bigtrk.graphs.features import SCALES
from bigtrk.graphs.manifest import file_of, read_manifest
from bigtrk.graphs.tensor_files import SectionFile, write_sections

_TENSORS = ("node_features", "edge_index", "edge_features")
_LABELS = ("y", "hit_id", "particle_id", "hit_weight")
_PARTICLES = ("particle_id", "pt", "eta", "vertex", "nhits")


def write_graph(folder: Path, graph: EventGraph, record: dict[str, Any]) -> Path:
    """Write one graph to its file in `folder`, atomically; returns the path.

    `record` is JSON-able and comes back from `GraphFolder.record` with these keys added: event,
    node_feature_names, edge_feature_names, scales of these features, nodes, edges.
    """
    columns = {name: getattr(graph, name) for name in _TENSORS + _LABELS}
    sections = {"graph": {name: c for name, c in columns.items() if c is not None}}
    if graph.particles is not None:
        sections["particles"] = {name: getattr(graph.particles, name) for name in _PARTICLES}
    features = (*graph.node_feature_names, *graph.edge_feature_names)
    names = {
        "event": graph.name,
        "node_feature_names": list(graph.node_feature_names),
        "edge_feature_names": list(graph.edge_feature_names),
        "scales": {name: SCALES[name] for name in features if name in SCALES},
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
    }
    path = file_of(folder, graph.name)
    write_sections(path, sections, {**record, **names})
    return path


class GraphFolder:
    """The graphs of a folder, read one event at a time.

    events: the names, ascending. manifest: the content of manifest.json.

    Raises:
        InputError: the folder is missing, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        kind, self.manifest = read_manifest(path)
        if kind != "graphs":
            raise InputError(
                f"{path}: holds {kind}, not graphs; name the folder they were cut from"
            )
        self.path = path
        self.events = sorted(self.manifest["events"])

    def record(self, event: str) -> dict[str, Any]:
        """What the manifest says of `event`.

        Raises:
            InputError: the folder has no such event.
        """
        if event not in self.manifest["events"]:
            raise InputError(f"{self.path}: has no event {event!r}; build it, or name another")
        found: dict[str, Any] = self.manifest["events"][event]
        return found

    def read(self, event: str) -> EventGraph:
        """The graph of `event`, its checksums verified.

        Raises:
            InputError: the folder has no such event, its file is damaged, or it is not the file
                that the manifest describes.
        """
        described = self.record(event)["digests"]
        opened = SectionFile(file_of(self.path, event))
        if opened.digests != described:
            raise InputError(
                f"{opened.path}: is not the file that the manifest describes; finish the build "
                f"with 'bigtrk build EVENTS {self.path}' and its former options"
            )
        particles = None
        if "particles" in opened.digests:
            particles = ParticleTable(**opened.read("particles"))
        return EventGraph(
            name=event,
            node_feature_names=tuple(opened.record["node_feature_names"]),
            edge_feature_names=tuple(opened.record["edge_feature_names"]),
            particles=particles,
            **opened.read("graph"),
        )
