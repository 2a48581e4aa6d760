"""Measures exported models and ours: the seconds that each takes of an event, on one core.

    python scripts/bench/bench_acts.py RUN GRAPHS [--events 5] [--output FILE] [--publish]

The models of RUN, a run or a pipeline, are exported to a temporary folder and called with all
edges of an event at once, as ACTS does: ONNX by ONNX Runtime, TorchScript by torch. Features are
there before a model of ours is called; the form without edge_attr computes those of edges itself.
The last line is one JSON object: by stage, medians over the events of GRAPHS.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from bigtrk.console import exit_on_bad_input, follow
from bigtrk.formats.acts.modules import Stage, export_run
from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.models.protocol import no_exchange
from bigtrk.pipeline.trained import stages_of
from bigtrk.training.data.batch import load_features
from scripts.results import Results, add_options
from tests.oracle.as_acts import OPEN, Exported, calls


def seconds(call: Callable[[], object]) -> float:
    """Returns the seconds that the second of two calls takes: the first makes buffers."""
    call()
    start = perf_counter()
    call()
    return perf_counter() - start


def of_ours(graph: EventGraph, stage: Stage) -> float:
    """Returns the seconds that a stage's trained model takes."""
    features, sector = load_features(stage.data, stage.measured), whole_sector(graph)
    sector = features.computed.of(sector)
    x, edges = features.of_nodes(sector), features.of_edges(sector)

    def call() -> None:
        with torch.no_grad():
            stage.model(x, edges, sector.edge_index, len(x), no_exchange)

    return seconds(call)


def measured(graph: EventGraph, stage: Stage, opened: dict[str, Exported]) -> dict[str, float]:
    """Returns the seconds by what computes, for one event and stage."""
    found = {"ours": of_ours(graph, stage)}
    for suffix, tensors, _ in calls(graph, stage):
        for kind in OPEN:
            model = opened[f"{stage.name}{suffix}.{kind}"]
            found[kind + suffix] = seconds(lambda model=model, tensors=tensors: model(*tensors))  # type: ignore[misc]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="run of an edge model or embedding, or a pipeline")
    parser.add_argument("graphs", type=Path, help="folder of graphs")
    parser.add_argument("--events", type=int, default=5, help="how many of them, the first by name")
    add_options(parser)
    arguments = parser.parse_args()
    results, folder = Results("acts", arguments), GraphFolder(arguments.graphs)
    torch.set_num_threads(1)
    stages, names = stages_of(arguments.run), folder.events[: arguments.events]
    with tempfile.TemporaryDirectory() as temporary:
        files = export_run(arguments.run, Path(temporary) / "models", stages_of)
        opened = {
            name: OPEN[name.rpartition(".")[2]](Path(temporary) / "models" / name)
            for name in files
            if name.rpartition(".")[2] in OPEN
        }
        events = [
            {stage.name: measured(folder.read(name), stage, opened) for stage in stages}
            for name in follow(names, len(names), "measuring")
        ]
    summary = {
        f"{stage.name}_seconds": {
            way: median(event[stage.name][way] for event in events) for way in events[0][stage.name]
        }
        for stage in stages
    }
    results.write(summary, events=dict(zip(names, events, strict=True)))


if __name__ == "__main__":
    exit_on_bad_input("bench_acts.py", main)
