"""Reads files of torch.save without running the code that their pickles may contain.

Such a file is a zip archive of tensors and of a pickle, which is a program that may call anything.
Here the pickle can name only tensors and containers. An object of a class that is known to come
with them becomes a `ForeignObject`, which keeps what the pickle says of it; any other name ends the
reading. Nothing is imported, and every tensor is checked against its bytes in the archive.
"""

import io
import math
import pickle
import pickletools
from collections import OrderedDict
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor

from bigtrk.disk.files import check_file, read_bytes
from bigtrk.disk.unpacking import check_members, gunzip, limit_of, read_member
from bigtrk.errors import InputError, damage_told, one_line

MOST_DESCRIPTION = 4 << 20  # bytes of the pickle, in which no tensor lies
# Prefixes of classes that come with tensors, whose objects are kept as ForeignObject.
NUMPY = ("_codecs.encode", "numpy.")
PYG = ("torch_geometric.", "torch_sparse.")
LIGHTNING = ("lightning.", "lightning_fabric.", "pytorch_lightning.")
_TENSOR = "torch._utils._rebuild_tensor_v2"
_STORAGES = {
    f"torch.{name}Storage": dtype
    for name, dtype in {
        "Double": torch.float64,
        "Float": torch.float32,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Long": torch.int64,
        "Int": torch.int32,
        "Short": torch.int16,
        "Char": torch.int8,
        "Byte": torch.uint8,
        "Bool": torch.bool,
    }.items()
}


class ForeignObject:
    """Stands for an object whose class is not loaded: its pickled `state` and, if it is a kind of
    dictionary, its `items`.
    """

    state: Any
    items: dict[Any, Any]

    def __new__(cls, *_: object, **__: object) -> "ForeignObject":
        held = object.__new__(cls)
        held.state, held.items = None, {}
        return held

    def __call__(self, *_: object) -> "ForeignObject":
        return ForeignObject()

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value


ForeignObject.__name__ = "object of another class"  # in messages
_OLD_TORCH = bytes.fromhex("8a0a6cfc9c46f9206aa850192e")  # a pickled number


def _naming_damage(file: Path, remedy: str) -> AbstractContextManager[None]:
    return damage_told(f"{file}: is damaged or was not made by torch.save", remedy)


@dataclass(frozen=True)
class TorchReader:
    """Reads files of torch.save of one kind without running their code.

    held: prefixes of the classes whose objects are kept as ForeignObject. without, again: remedies
    in messages, for a file with other objects, and for a file of another kind.
    """

    held: tuple[str, ...]
    without: str
    again: str

    def read(self, file: Path) -> Any:
        """Returns the content of a file, which may be gzipped; its tensors are `Described`. Raises
        InputError if it is damaged, is no file of torch.save, or its pickle names anything else.
        """
        check_file(file)
        with _naming_damage(file, self.again):
            with file.open("rb") as opened:
                head = opened.read(16)
            if _OLD_TORCH in head:
                raise InputError(
                    f"{file}: was saved by torch before 1.6; load it with torch.load, and save it "
                    "again with torch.save"
                )
            if not head.startswith(b"\x1f\x8b"):
                return self._in_archive(file, ZipFile(file))
            packed = read_bytes(file)
            content = gunzip(packed, limit_of(len(packed)), str(file))
            return self._in_archive(file, ZipFile(io.BytesIO(content)))

    def columns(self, file: Path) -> dict[str, Any]:
        """Reads PyG's Data, or a DataBatch of one graph: columns by name, tensors as saved and
        other values. InputError as in `read`, or if it is not one graph.
        """
        store = _state(_state(self.read(file)).get("_store"))
        columns = store.get("_mapping")
        if not isinstance(columns, dict) or not all(isinstance(name, str) for name in columns):
            raise InputError(f"{file}: holds no Data object of PyG 2.8; {self.again}")
        if store.get("_num_graphs", 1) != 1:
            raise InputError(f"{file}: holds several graphs; save each in a file of its own")
        return self.made(file, columns)

    def made(self, file: Path, columns: dict[str, Any]) -> dict[str, Any]:
        """Returns all columns with `Described` values, also those in tables, made into tensors.
        InputError if a tensor's size is impossible, or larger than its values in the file.
        """
        with _naming_damage(file, self.again):
            return {
                name: {key: _made(value) for key, value in one.items()}
                if type(one) is dict
                else _made(one)
                for name, one in columns.items()
            }

    def _in_archive(self, file: Path, archive: ZipFile) -> Any:
        with archive:
            check_members(file, archive)
            names = archive.namelist()
            pickles = [name for name in names if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise ValueError("it holds no data.pkl, or several")
            folder = pickles[0].removesuffix("data.pkl")
            order = f"{folder}byteorder"
            if order in names and read_member(file, archive, order)[0] != b"little":
                said = f"{file}: was saved on a big-endian machine"
                raise InputError(f"{said}; save it again on a little-endian one, such as x86")
            if archive.getinfo(pickles[0]).file_size > MOST_DESCRIPTION:
                raise ValueError("its data.pkl is too large for a file of tensors")
            description, _ = read_member(file, archive, pickles[0])
            _check_numbers(description)
            return _Unpickler(self, file, archive, f"{folder}data/", description).load()


def _made(value: Any) -> Any:
    return value.tensor() if isinstance(value, Described) else value


def _state(thing: Any) -> dict[Any, Any]:
    """Returns a foreign object's pickled state if it is a dictionary; {} for anything else."""
    state = thing.state if isinstance(thing, ForeignObject) else None
    return state if isinstance(state, dict) else {}


def _check_numbers(description: bytes) -> None:
    """Raises ValueError if a pickle numbers an object higher than the objects it has: unpickling
    would allocate a table up to this number.
    """
    for count, (opcode, argument, _) in enumerate(pickletools.genops(description)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise ValueError("its pickle numbers an object too high")


# The values of tensors, [number of values]; a pickle could change a tensor, but no tuple.
_Storage = tuple[Tensor]


class Described:
    """A pickled description of a tensor; torch's own classes could run code from the pickle."""

    __slots__ = ("offset", "size", "storage", "stride")

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any, *_: object) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def tensor(self) -> Tensor:
        """Makes the tensor; ValueError if its size is impossible, or larger than its values."""
        size, stride, counts = self.size, self.stride, [self.offset, *self.size, *self.stride]
        if len(size) != len(stride) or not all(type(one) is int and one >= 0 for one in counts):
            raise ValueError("a tensor has an impossible size")
        values: Tensor = self.storage[0]
        last = self.offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        elements = math.prod(size)
        if elements and max(elements, last + 1) > len(values):
            raise ValueError("a tensor is larger than its data in the file")
        return values.as_strided(size, stride, self.offset) if elements else values.new_empty(size)


class _Unpickler(pickle.Unpickler):
    """Unpickles a file of torch.save; of all objects that it may name, only tensors are made."""

    def __init__(
        self, reader: TorchReader, file: Path, archive: ZipFile, folder: str, description: bytes
    ) -> None:
        super().__init__(io.BytesIO(description))
        self._reader, self._file, self._archive, self._folder = reader, file, archive, folder
        self._storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in for a class that the pickle names, or raises; imports nothing."""
        place = f"{module}.{name}"
        if place == _TENSOR:
            return partial(Described)  # a pickle could change the class itself
        if place == "collections.OrderedDict":
            return OrderedDict
        if place in _STORAGES:
            return _STORAGES[place]
        if place.startswith(self._reader.held):
            return ForeignObject
        raise InputError(
            f"{self._file}: holds an object of {one_line(place)}, but bigtrk reads only tensors; "
            f"{self._reader.without}"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        """Returns the storage that holds a tensor's values, read once from the archive."""
        _, dtype, key, *_ = pid
        if not isinstance(dtype, torch.dtype) or not isinstance(key, str):
            raise ValueError("a tensor has values of an unknown type")
        if key not in self._storages:
            content, _ = read_member(self._file, self._archive, self._folder + key)
            self._storages[key] = (_values(content, dtype),)
        if self._storages[key][0].dtype != dtype:
            raise ValueError("two tensors of different types share their values")
        return self._storages[key]


def _values(content: bytes, dtype: torch.dtype) -> Tensor:
    if not content:
        return torch.empty(0, dtype=dtype)
    if dtype is torch.bool:  # a byte may be neither 0 nor 1
        return torch.frombuffer(bytearray(content), dtype=torch.uint8) != 0
    return torch.frombuffer(bytearray(content), dtype=dtype)
