"""How files from elsewhere are read in fuzzing and property tests."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import numpy as np
import torch

from bigtrk.errors import InputError
from bigtrk.graphs.storage.tensor_files import digest

EVENT = "event000000001"


@dataclass(frozen=True)
class Reader:
    """`seeds`: valid inputs. `read`: returns what was read, or raises InputError."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[Path, bytes], object]


def same(one: object, other: object) -> bool:
    """Says whether two things that were read agree, values bit by bit."""
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
