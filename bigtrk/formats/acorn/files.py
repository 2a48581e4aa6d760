"""Files of PyTorch Geometric's graphs as acorn saves them, read without running what they say.

A file of torch.save is a zip archive of tensors and of a pickle, a program that may call anything.
Here it can name tensors and plain values alone: whatever else belongs to a saved graph becomes a
`Held`, which keeps what the pickle says of it, and any other name ends the reading. Nothing is
imported, and every tensor is checked against the bytes that the archive has for it.
"""

import gzip
import io
import math
import pickle
import pickletools
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor

from bigtrk.disk.files import check_file, read_bytes
from bigtrk.disk.unpacking import check_members, gunzip, limit_of, read_member
from bigtrk.errors import InputError, one_line, reason

MOST_DESCRIPTION = 4 << 20  # bytes of the pickle, in which no tensor lies
_GZIP = b"\x1f\x8b"
_TENSOR = "torch._utils._rebuild_tensor_v2"
_ORDERED = "collections.OrderedDict"
# Packages whose objects acorn leaves in its graphs: their names are read, their code is not.
_HELD = (
    "torch_geometric.",
    "torch_sparse.",
    "pytorch_lightning.",
    "lightning.",
    "lightning_fabric.",
)
_STORAGES = {
    "torch.DoubleStorage": torch.float64,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16,
    "torch.CharStorage": torch.int8,
    "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool,
}


class Held:
    """An object of a class that is not loaded. state: what it was to be built from. items: what it
    held as a dictionary.
    """

    state: Any
    items: dict[Any, Any]

    def __new__(cls, *_: object, **__: object) -> "Held":
        held = object.__new__(cls)
        held.state, held.items = None, {}
        return held

    def __call__(self, *_: object) -> "Held":
        return Held()

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value


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
    return {
        name: one.tensor() if isinstance(one, Described) else one for name, one in columns.items()
    }


def _state(thing: Any) -> dict[Any, Any]:
    """Returns what an object was to be built from, nothing of what is no such object."""
    state = thing.state if isinstance(thing, Held) else None
    return state if isinstance(state, dict) else {}


def _saved(file: Path) -> Any:
    with file.open("rb") as handle:
        packed = handle.read(2) == _GZIP
    if not packed:
        return _in_archive(file, ZipFile(file))
    content = read_bytes(file)
    try:
        unpacked = gunzip(content, limit_of(len(content)), str(file))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(file, reason(error)) from None
    return _in_archive(file, ZipFile(io.BytesIO(unpacked)))


def _in_archive(file: Path, archive: ZipFile) -> Any:
    with archive:
        check_members(file, archive)
        names = archive.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise _damaged(file, "it holds no data.pkl")
        folder = pickles[0].removesuffix("data.pkl")
        order = f"{folder}byteorder"
        if order in names and read_member(file, archive, order)[0] != b"little":
            raise InputError(f"{file}: was saved on a big-endian machine; save it on another")
        if archive.getinfo(pickles[0]).file_size > MOST_DESCRIPTION:
            raise InputError(f"{file}: describes more than a graph; save its tensors alone")
        description, _ = read_member(file, archive, pickles[0])
        _check_numbers(description)
        return _Reader(file, archive, f"{folder}data/", description).load()


def _check_numbers(description: bytes) -> None:
    """Refuses a pickle that numbers an object beyond those it has: a table of all numbers up to
    there would be made for it.
    """
    for count, (opcode, argument, _) in enumerate(pickletools.genops(description)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise ValueError("an object has a number that is too high")


class _Storage:
    """The values of tensors [their number], which a pickle cannot change."""

    __slots__ = ("values",)

    def __init__(self, values: Tensor) -> None:
        self.values = values


class Described:
    """A tensor as the pickle describes it: torch's own would obey what else a pickle may say."""

    __slots__ = ("offset", "size", "storage", "stride")

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def tensor(self) -> Tensor:
        """Makes the tensor.

        Raises:
            ValueError: its size is none, or larger than its values.
        """
        size, stride, counts = self.size, self.stride, [self.offset, *self.size, *self.stride]
        if len(size) != len(stride) or not all(type(one) is int and one >= 0 for one in counts):
            raise ValueError("the size of a tensor is no size")
        values: Tensor = self.storage.values
        last = self.offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        elements = math.prod(size)
        if elements and max(elements, last + 1) > len(values):
            raise ValueError("a tensor is larger than what the file has of it")
        return values.as_strided(size, stride, self.offset) if elements else values.new_empty(size)


class _Describe:
    """Describes tensors, in place of torch's function. A pickle could change a class, not this."""

    __slots__ = ()

    def __call__(self, *said: Any) -> Described:
        """Describes a tensor by its storage, offset, size, stride and what else is said of it."""
        return Described(*said)


class _Reader(pickle.Unpickler):
    """Reads a graph's pickle. Of all that it may name only tensors are made."""

    def __init__(self, file: Path, archive: ZipFile, folder: str, description: bytes) -> None:
        super().__init__(io.BytesIO(description))
        self._file, self._archive, self._folder = file, archive, folder
        self._storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Gives what stands for a name in the pickle; nothing is imported."""
        place = f"{module}.{name}"
        if place == _TENSOR:
            return _Describe()
        if place in _STORAGES:
            return _STORAGES[place]
        if place == _ORDERED:
            return OrderedDict
        if place.startswith(_HELD):
            return Held
        raise InputError(
            f"{self._file}: asks for {one_line(place)}, and nothing but tensors is made of what a "
            f"file says; save the graph without it"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        """Gives the values of tensors."""
        _, dtype, key, *_ = pid
        if not isinstance(dtype, torch.dtype) or not isinstance(key, str):
            raise ValueError("a tensor has no values of a known type")
        if key not in self._storages:
            content, _ = read_member(self._file, self._archive, self._folder + key)
            self._storages[key] = _Storage(_values(content, dtype))
        if self._storages[key].values.dtype != dtype:
            raise ValueError("two tensors of different types share their values")
        return self._storages[key]


def _values(content: bytes, dtype: torch.dtype) -> Tensor:
    if not content:
        return torch.empty(0, dtype=dtype)
    if dtype is torch.bool:  # a byte may be neither 0 nor 1
        return torch.frombuffer(bytearray(content), dtype=torch.uint8) != 0
    return torch.frombuffer(bytearray(content), dtype=dtype)


def _damaged(file: Path, why: str) -> InputError:
    return InputError(
        f"{file}: is no graph that torch.save wrote, or damaged ({why}); write it again with acorn"
    )
