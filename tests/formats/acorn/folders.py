"""Folders of graphs as commands make them."""

from pathlib import Path
from typing import Any

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.fill_folder import GraphToMake, fill_folder


def folder_of(folder: Path, *graphs: EventGraph, **record: Any) -> Path:
    """A folder of these graphs, each with the same record."""

    def task(graph: EventGraph) -> GraphToMake:
        return GraphToMake(graph.name, graph.name, lambda: (graph, record))

    fill_folder(folder, map(task, graphs), len(graphs), {}, "graphs")
    return folder
