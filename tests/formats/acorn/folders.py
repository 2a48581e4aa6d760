"""Folders of graphs and of runs as commands make them."""

from pathlib import Path
from typing import Any

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import GraphToMake, fill_folder
from bigtrk.records.run import MeasuredScales
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration


def folder_of(folder: Path, *graphs: EventGraph, **record: Any) -> Path:
    """A folder of these graphs, each with the same record."""

    def task(graph: EventGraph) -> GraphToMake:
        return GraphToMake(graph.name, graph.name, lambda: (graph, record))

    fill_folder(folder, map(task, graphs), len(graphs), {}, "graphs")
    return folder


def drawn_run(folder: Path) -> Path:
    """A run of the Interaction GNN whose weights are drawn."""
    drawn = Configuration.model_validate({"model": {"hidden": 8}})
    described = describe(drawn, [], MeasuredScales())
    save_model(folder, build_model(drawn).state_dict(), described)
    return folder
