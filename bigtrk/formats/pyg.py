"""Files of PyTorch Geometric's `Data`, one graph each, imported.

A file of torch.save is a zip archive with a pickle in it. Of classes in that pickle only those of a
Data are made (torch.load with weights_only), and sizes and checksums are verified before. Numbers
and arrays of numpy become empty shells, since an event graph has no place for them.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_STORED, ZipFile

import torch
from torch import Tensor

from bigtrk.console import warn_once
from bigtrk.disk.files import by_numbers, check_file
from bigtrk.disk.unpacking import HEAD, refuse_old_torch
from bigtrk.errors import InputError, one_line, reason
from bigtrk.formats.acorn.restricted import Held
from bigtrk.graphs.event_graph import EventGraph, from_data
from bigtrk.graphs.storage.graph_folder import GraphToMake, as_it_is, fill_folder

if TYPE_CHECKING:
    from torch_geometric.data import Data

SUFFIXES = (".pt", ".pyg")
_OF_DATASET = ("pre_filter.pt", "pre_transform.pt")  # a Dataset writes them beside its graphs
_OF_NUMPY = (  # of numpy 2, and of numpy 1
    "numpy.dtype",
    "numpy.ndarray",
    "numpy._core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
)
_REMEDY = "save each graph by itself as torch.save(Data(x=..., edge_index=...), FILE)"


class NumpyValue(Held):
    """A number or an array of numpy, which is not made."""


def import_pyg_folder(
    source: Path,
    out: Path,
    node_features: Sequence[str] = (),
    edge_features: Sequence[str] = (),
    prefix: str = "",
) -> dict[str, Any]:
    """Imports all files of Data in `source` (a folder or one file) to `out`; returns the manifest.

    Columns are named as `read_pyg` does. prefix: comes before the names of files, in those of
    graphs.

    Raises:
        InputError: there are none, two would make the same event, or one cannot be read; those
            imported before it stay.
    """
    files = [source] if source.is_file() else _files(source)
    if not files:
        raise InputError(f"{source}: holds no .pt or .pyg files; name the folder that does")
    columns = {"node_features": list(node_features), "edge_features": list(edge_features)}
    tasks = (_task(file, columns) for file in files)
    made = {"from": "pyg", **columns}
    return fill_folder(out, tasks, len(files), made, "importing graphs", prefix=prefix)


def read_pyg(
    file: Path, node_features: Sequence[str] = (), edge_features: Sequence[str] = ()
) -> EventGraph:
    """Reads one graph, named after its file, as EventGraph.from_pyg makes it.

    node_features, edge_features: names of the columns of x and of edge_attr.

    Raises:
        InputError: the file is damaged, is no Data or holds other classes, or EventGraph.from_pyg
            refuses it.
    """
    return from_data(_data(file), file.stem, node_features, edge_features, str(file))


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("*") if path.suffix in SUFFIXES]
    if others := [path.name for path in found if path.name in _OF_DATASET]:
        warn_once("others", f"{folder}: {', '.join(sorted(others))}: left out, holds no graph")
    graphs = (path for path in found if path.name not in _OF_DATASET)
    files = sorted(graphs, key=lambda path: (by_numbers(path.stem), path.name))
    for one, other in pairwise(files):
        if one.stem == other.stem:
            raise InputError(f"{other}: {one.name} makes an event of the same name; rename one")
    return files


def _task(file: Path, columns: dict[str, list[str]]) -> GraphToMake:
    source = hashlib.sha256(file.read_bytes()).hexdigest()
    return GraphToMake(file.stem, source, lambda: as_it_is(read_pyg(file, **columns)))


def _data(file: Path) -> "Data":
    """Reads the Data in a file, which may be anybody's."""
    from torch_geometric.data import Data

    check_file(file)
    _check_archive(file)
    loaded = _load(file)
    if type(loaded) is not Data:
        raise InputError(f"{file}: holds {type(loaded).__name__} and not Data; {_REMEDY}")
    try:
        tensors = list(_tensors(loaded.to_dict()))
    except Exception as error:  # its state may be anything
        raise _damaged(file, error) from None
    for name, tensor in tensors:
        # What a pickle says of a tensor's shape may make much of few bytes.
        if tensor.numel() * tensor.element_size() > file.stat().st_size:
            raise InputError(f"{file}: {name} is larger than the file; {_REMEDY}")
    return loaded


def _tensors(content: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Yields the dense tensors in a dictionary and in those that it holds, by name."""
    for name, value in content.items():
        if isinstance(value, Tensor) and value.layout is torch.strided:
            yield name, value
        elif isinstance(value, dict):
            yield from _tensors(value)


def _check_archive(file: Path) -> None:
    """Checks the checksums, which torch does not, and that nothing is packed."""
    try:
        with file.open("rb") as opened:
            refuse_old_torch(file, opened.read(HEAD))
        with ZipFile(file) as archive:
            members = archive.infolist()
            packed = any(member.compress_type != ZIP_STORED for member in members)
            if packed or sum(member.file_size for member in members) > file.stat().st_size:
                raise InputError(f"{file}: is packed, as torch.save does not; {_REMEDY}")
            damaged = archive.testzip()
    except InputError:
        raise
    except Exception as error:  # zipfile promises no one kind for damage
        raise _damaged(file, error) from None
    if damaged:
        raise _damaged(file, ValueError(f"checksum of {damaged}"))


def _load(file: Path) -> Any:
    """Loads a file in which only the classes of a Data are made, and no function is called."""
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    of_data = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    of_numpy = [(NumpyValue, name) for name in _OF_NUMPY]
    try:
        with torch.serialization.safe_globals([*of_data, *of_numpy]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler promises no one kind for damage
        foreign = re.search(r"GLOBAL (\S+)", str(error))
        if foreign:
            raise InputError(
                f"{file}: asks for {one_line(foreign[1])}, and of classes in a file only Data and "
                f"its tensors, as PyTorch Geometric 2.8 writes them, are trusted; {_REMEDY}"
            ) from None
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> InputError:
    return InputError(f"{file}: is no file of torch.save, or damaged ({reason(error)}); {_REMEDY}")
