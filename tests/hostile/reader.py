"""Readers of files from elsewhere, for fuzzing and property tests."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import numpy as np
import torch

from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import digest

EVENT = "event000000001"


@dataclass(frozen=True)
class Reader:
    """`seeds`: valid inputs. `read`: returns what was read, or raises InputError."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[Path, bytes], object]


def of_files(
    files: Callable[[], dict[str, bytes]],
    read: Callable[[Path], object],
    others: Callable[[], dict[str, bytes]] = dict,
) -> Reader:
    """Makes the reader of a folder that holds `files`. The first byte of an input names one of them
    by its place, which becomes the rest of the input. others: files that stay good.
    """

    def lay_and_read(folder: Path, content: bytes) -> object:
        spoilt = [*files()][content[0] % len(files()) if content else 0]
        for name, good in {**files(), **others(), spoilt: files()[spoilt]}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content[1:] if name == spoilt else good)
        return read(folder)

    seeds = lambda: [bytes([kind]) + good for kind, good in enumerate(files().values())]  # noqa: E731
    return Reader(seeds, lay_and_read)


def of_file(
    seeds: Callable[[], list[bytes]],
    name: str,
    read: Callable[[Path], object],
    agreeing: Callable[[bytes], bytes],
) -> Reader:
    """Makes the reader of one file. Where the first byte of an input is odd, its checksums agree,
    as an attacker would write it.
    """

    def lay_and_read(folder: Path, content: bytes) -> object:
        path, is_odd = folder / name, bool(content[:1] and content[0] % 2)
        path.write_bytes(agreeing(content[1:]) if is_odd else content[1:])
        return read(path)

    return Reader(
        lambda: [bytes([kind]) + seed for seed in seeds() for kind in range(2)], lay_and_read
    )


def same(one: object, other: object) -> bool:
    """Whether two things that were read agree, values bit by bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return digest({"x": one}) == digest({"x": other})
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def one_line(error: InputError, folder: Path) -> bool:
    return str(error).replace(str(folder), "").isprintable()


def refusal(read: Callable[[], object]) -> InputError:
    """Returns the error that `read` raises, or an empty one if it raises none."""
    try:
        read()
    except InputError as error:
        return error
    return InputError("")
