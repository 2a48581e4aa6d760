"""Files of torch.save, read without running what they say.

Such a file is a zip archive of tensors and of a pickle, a program that may call anything. Here it
can name tensors and containers alone: an object of a class that is known to come with them becomes
a `Held`, which keeps what the pickle says of it, and any other name ends the reading. Nothing is
imported, and every tensor is checked against the bytes that the archive has for it.
"""

import io
import math
import pickle
import pickletools
from collections import OrderedDict
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor

from bigtrk.disk.unpacking import check_members, read_member
from bigtrk.errors import InputError, one_line

MOST_DESCRIPTION = 4 << 20  # bytes of the pickle, in which no tensor lies
_TENSOR = "torch._utils._rebuild_tensor_v2"
_ORDERED = "collections.OrderedDict"
_STORAGES = {
    "torch.DoubleStorage": torch.float64,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
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


def read_archive(file: Path, archive: ZipFile, held: tuple[str, ...], remedy: str) -> Any:
    """Reads what torch.save wrote to the `archive` of `file`.

    held: how the names of classes begin whose objects are kept as Held. remedy: the end of the
    message where a name is refused.

    Raises:
        InputError: the pickle names anything else, or a member of the archive is refused.
        Exception: whatever zipfile and pickle raise for damage.
    """
    check_members(file, archive)
    names = archive.namelist()
    pickles = [name for name in names if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ValueError("it holds no data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    order = f"{folder}byteorder"
    if order in names and read_member(file, archive, order)[0] != b"little":
        raise InputError(f"{file}: was saved on a big-endian machine; save it on another")
    if archive.getinfo(pickles[0]).file_size > MOST_DESCRIPTION:
        raise ValueError("its description is larger than that of tensors")
    description, _ = read_member(file, archive, pickles[0])
    _check_numbers(description)
    return _Reader(file, archive, f"{folder}data/", description, held, remedy).load()


def made(columns: dict[str, Any]) -> dict[str, Any]:
    """Makes tensors of those values that describe one.

    Raises:
        ValueError: one has no size, or is larger than its values.
    """
    return {
        name: one.tensor() if isinstance(one, Described) else one for name, one in columns.items()
    }


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
    """Reads a pickle of torch.save. Of all that it may name only tensors are made."""

    def __init__(
        self,
        file: Path,
        archive: ZipFile,
        folder: str,
        description: bytes,
        held: tuple[str, ...],
        remedy: str,
    ) -> None:
        super().__init__(io.BytesIO(description))
        self._file, self._archive, self._folder = file, archive, folder
        self._held, self._remedy = held, remedy
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
        if place.startswith(self._held):
            return Held
        raise InputError(
            f"{self._file}: asks for {one_line(place)}, and nothing but tensors is made of what a "
            f"file says; {self._remedy}"
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
