"""Graphs in the HEPTrkX npz layout (see bigtrk.formats.heptrkx), exported."""

from pathlib import Path
from typing import Any

import numpy as np

from bigtrk.console import follow
from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError
from bigtrk.formats.heptrkx import INCIDENCE, UNITS, Arrays
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import GraphFolder

COLUMNS = ("r", "phi", "z")  # of X, in the order of UNITS


def export_heptrkx_folder(graphs: Path, out: Path) -> list[Path]:
    """Writes each graph of folder `graphs` as `out`/NAME.npz, atomically; returns the paths. Ids,
    particles and all features but r, phi and z have no place there.

    Raises:
        InputError: the folder or a graph cannot be read, or a graph lacks labels, r, phi or z;
            those written before stay.
    """
    folder = GraphFolder(graphs)
    return [
        write_heptrkx(folder.read(name), out)
        for name in follow(folder.events, len(folder.events), "exporting graphs")
    ]


def write_heptrkx(graph: EventGraph, folder: Path) -> Path:
    """Writes one graph to `folder`/NAME.npz, atomically, and returns the path.

    Raises:
        InputError: it lacks labels, r, phi or z.
    """
    arrays: dict[str, Any] = {**_arrays(graph)}
    path = folder / f"{graph.name}.npz"

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:  # by a name, numpy would add a suffix to it
            np.savez(file, **arrays)

    write_atomically(path, save)
    return path


def _arrays(graph: EventGraph) -> Arrays:
    if graph.y is None:
        raise InputError(
            f"{graph.name}: has no labels, which this layout needs; build it from events with truth"
        )
    if missing := [name for name in COLUMNS if name not in graph.node_feature_names]:
        raise InputError(
            f"{graph.name}: has no node feature {missing[0]!r}, and X holds r, phi and z; store it "
            "in the graph"
        )
    columns = [graph.node_feature_names.index(name) for name in COLUMNS]
    # The float32 nearest to a quotient gives the column again, if any float32 does.
    x = (graph.node_features[:, columns].numpy().astype(np.float64) / UNITS).astype(np.float32)
    source, destination = graph.edge_index.numpy()
    edges = np.arange(graph.n_edges)
    incidence = dict(zip(INCIDENCE, (destination, edges, source, edges), strict=True))
    return {"X": x, "y": graph.y.numpy().astype(np.float32), **incidence}
