"""Imports files of PyTorch Geometric's `Data`, one graph each, without running their code."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bigtrk.console import warn_once
from bigtrk.disk.files import by_numbers
from bigtrk.errors import InputError
from bigtrk.formats.torch_files import NUMPY, PYG, TorchReader
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.pyg_data import from_data
from bigtrk.graphs.storage.graph_folder import GraphToMake, as_it_is, fill_folder

SUFFIXES = (".pt", ".pyg")
_OF_DATASET = ("pre_filter.pt", "pre_transform.pt")  # a Dataset writes them next to its graphs
_REMEDY = "save each graph by itself as torch.save(Data(x=..., edge_index=...), FILE)"
_READER = TorchReader(
    # An event graph has no place for objects of these classes; they are left out or refused.
    held=(
        *NUMPY,
        *PYG,
        "torch.Size",
        "torch._utils._rebuild_sparse_tensor",
        "torch.serialization._get_layout",
    ),
    without=_REMEDY,
    again=_REMEDY,
)


def import_pyg_folder(
    source: Path,
    out: Path,
    node_features: Sequence[str] = (),
    edge_features: Sequence[str] = (),
    prefix: str = "",
) -> dict[str, Any]:
    """Imports all files of Data in `source` (a folder or one file) to `out`; returns the manifest.

    node_features, edge_features: as in `read_pyg`. prefix: starts the names of graphs, before the
    file's name. Raises InputError if there are no files, two would make the same event, or one
    cannot be read; those imported before it stay.
    """
    files = [source] if source.is_file() else _files(source)
    if not files:
        problem = "holds no .pt or .pyg files" if source.is_dir() else "no such folder"
        raise InputError(f"{source}: {problem}; name the folder of PyG's graphs")
    columns = {"node_features": list(node_features), "edge_features": list(edge_features)}
    tasks = (_task(file, columns) for file in files)
    made = {"from": "pyg", **columns}
    return fill_folder(out, tasks, len(files), made, "importing graphs", prefix=prefix)


def read_pyg(
    file: Path, node_features: Sequence[str] = (), edge_features: Sequence[str] = ()
) -> EventGraph:
    """Reads one graph, named after its file, as EventGraph.from_pyg makes it.

    node_features, edge_features: names of the columns of x and of edge_attr. Raises InputError if
    the file is damaged, holds no Data of one graph, or asks for anything but tensors; or
    EventGraph.from_pyg refuses it.
    """
    content = _READER.columns(file)
    return from_data(content, file.stem, node_features, edge_features, str(file))


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("*") if path.suffix in SUFFIXES]
    if others := [path.name for path in found if path.name in _OF_DATASET]:
        warn_once("others", f"{folder}: left out {', '.join(sorted(others))}, which hold no graphs")
    graphs = (path for path in found if path.name not in _OF_DATASET)
    files = sorted(graphs, key=lambda path: (by_numbers(path.stem), path.name))
    for one, other in pairwise(files):
        if one.stem == other.stem:
            raise InputError(f"{other}: makes an event of the same name as {one}; rename one file")
    return files


def _task(file: Path, columns: dict[str, list[str]]) -> GraphToMake:
    source = hashlib.sha256(file.read_bytes()).hexdigest()
    return GraphToMake(file.stem, source, lambda: as_it_is(read_pyg(file, **columns)))
