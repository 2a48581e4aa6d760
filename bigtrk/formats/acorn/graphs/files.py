"""Files of PyTorch Geometric's graphs as acorn saves them, read without running what they say."""

import gzip
import io
import zlib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from bigtrk.disk.files import check_file, read_bytes
from bigtrk.disk.unpacking import HEAD, gunzip, limit_of, refuse_old_torch
from bigtrk.errors import InputError, reason
from bigtrk.formats.acorn.restricted import Held, made, read_archive

_GZIP = b"\x1f\x8b"
_WITHOUT = "save the graph without it"
# Packages whose objects acorn leaves in its graphs: their names are read, their code is not.
_HELD = (
    "_codecs.encode",
    "numpy.",
    "torch_geometric.",
    "torch_sparse.",
    "pytorch_lightning.",
    "lightning.",
    "lightning_fabric.",
)


def read_columns(file: Path) -> dict[str, Any]:
    """Reads the graph in a .pyg or .pyg.gz file, a Data or the DataBatch of one: its columns by
    name, tensors as they were saved, and other values.

    Raises:
        InputError: the file is damaged, no file of torch.save, asks for anything but a graph's
            tensors, or holds anything but one graph.
    """
    check_file(file)
    try:
        return _columns(file, _saved(file))
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib and pickle promise no one kind for damage
        raise _damaged(file, reason(error)) from None


def _columns(file: Path, saved: Any) -> dict[str, Any]:
    """Takes the columns out of a saved graph; of those that are tensors makes tensors."""
    store = _state(_state(saved).get("_store"))
    columns = store.get("_mapping")
    if not isinstance(columns, dict) or not all(isinstance(name, str) for name in columns):
        raise InputError(f"{file}: holds no Data of PyTorch Geometric; name acorn's graphs")
    if store.get("_num_graphs", 1) != 1:
        raise InputError(f"{file}: holds several graphs; save each event by itself, as acorn does")
    return made(columns)


def _state(thing: Any) -> dict[Any, Any]:
    """Returns what an object was to be built from, nothing of what is no such object."""
    state = thing.state if isinstance(thing, Held) else None
    return state if isinstance(state, dict) else {}


def _saved(file: Path) -> Any:
    with file.open("rb") as handle:
        head = handle.read(HEAD)
    refuse_old_torch(file, head)
    if not head.startswith(_GZIP):
        return _in_archive(file, ZipFile(file))
    content = read_bytes(file)
    try:
        unpacked = gunzip(content, limit_of(len(content)), str(file))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(file, reason(error)) from None
    refuse_old_torch(file, unpacked)
    return _in_archive(file, ZipFile(io.BytesIO(unpacked)))


def _in_archive(file: Path, archive: ZipFile) -> Any:
    with archive:
        return read_archive(file, archive, _HELD, _WITHOUT)


def _damaged(file: Path, why: str) -> InputError:
    return InputError(
        f"{file}: is no graph that torch.save wrote, or damaged ({why}); write it again with acorn"
    )
