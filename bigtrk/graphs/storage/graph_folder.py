"""A folder of event graphs: one file per event and a manifest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bigtrk.config import parse
from bigtrk.graphs.checks import GRAPH, check_columns, check_rows
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import SCALES
from bigtrk.graphs.storage.entries import GraphEntry
from bigtrk.graphs.storage.event_folder import EventFolder, particle_sections, read_particles
from bigtrk.graphs.storage.manifest import describe, file_of
from bigtrk.graphs.storage.tensor_files import Section, SectionFile, write_sections


def write_graph(
    folder: Path,
    graph: EventGraph,
    record: dict[str, Any],
    beside: Mapping[str, Section] | None = None,
) -> Path:
    """Writes one graph to its file in `folder`, atomically; returns the path.

    beside: sections of what the graph's source knows and a graph has no place for.
    `record` is JSON-able and comes back from `GraphFolder.record` with these keys added: event,
    node_feature_names, edge_feature_names, scales of these features, nodes, edges.
    """
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
    write_sections(path, {**graph_sections(graph), **(beside or {})}, {**record, **names})
    return path


def graph_sections(graph: EventGraph) -> dict[str, Section]:
    """Returns the tensors that are stored of a graph, those of its particles apart."""
    columns = {name: getattr(graph, name) for name in GRAPH}
    known = {name: column for name, column in columns.items() if column is not None}
    return {"graph": known} | particle_sections(graph.particles)


class GraphFolder(EventFolder):
    """The graphs of a folder, read one event at a time."""

    kind = "graphs"
    entry = GraphEntry
    maker = "bigtrk build EVENTS {path}"

    def read(self, event: str) -> EventGraph:
        """Reads the graph of `event` and verifies its checksums.

        Raises:
            InputError: `open` fails, the file's bytes have changed, or they are no graph.
        """
        return _graph(self.open(event))


def check_graph(opened: SectionFile) -> None:
    """Refuses a file that holds anything but a graph, and what is kept beside it, whole.

    Raises:
        InputError: the file is no graph, or a section of it is damaged.
    """
    parse(GraphEntry, describe(opened), str(opened.path))
    _graph(opened)
    for beside in opened.digests.keys() - {"graph", "particles"}:
        opened.read(beside)


def _graph(opened: SectionFile) -> EventGraph:
    content, record = opened.read("graph"), opened.record
    where = f"{opened.path}, graph"
    sizes = {
        "N": record["nodes"],
        "E": record["edges"],
        "F": len(record["node_feature_names"]),
        "G": len(record["edge_feature_names"]),
    }
    check_columns(content, GRAPH, sizes, where)
    check_rows(content["edge_index"], record["nodes"], f"{where}: edge_index")
    return EventGraph(
        name=record["event"],
        node_feature_names=tuple(record["node_feature_names"]),
        edge_feature_names=tuple(record["edge_feature_names"]),
        particles=read_particles(opened),
        **content,
    )
