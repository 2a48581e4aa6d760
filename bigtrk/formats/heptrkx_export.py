"""Graphs in the HEPTrkX npz layout (see bigtrk.formats.heptrkx), exported.

Shapes: N nodes.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
    arrays = _arrays(graph)
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
    places = [
        _in_unit(graph.node_features[:, graph.node_feature_names.index(name)].numpy(), unit)
        for name, unit in zip(COLUMNS, UNITS, strict=True)
    ]
    source, destination = graph.edge_index.numpy()
    edges = np.arange(graph.n_edges)
    incidence = dict(zip(INCIDENCE, (destination, edges, source, edges), strict=True))
    return {"X": np.stack(places, axis=1), "y": graph.y.numpy().astype(np.float32), **incidence}


def _in_unit(column: NDArray[np.float32], unit: float) -> NDArray[np.float32]:
    """Divides a column [N] by its unit, so that a reader who multiplies gets the column again, if
    any float32 gives it: one beside the quotient often does where the quotient itself does not.
    """
    quotient = (column.astype(np.float64) / unit).astype(np.float32)
    for towards in (-np.inf, np.inf):
        beside = np.nextafter(quotient, np.float32(towards))
        better = ~_gives(quotient, unit, column) & _gives(beside, unit, column)
        quotient = np.where(better, beside, quotient)
    return quotient


def _gives(
    quotient: NDArray[np.float32], unit: float, column: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Says where a reader gets the column."""
    return (quotient.astype(np.float64) * unit).astype(np.float32) == column
