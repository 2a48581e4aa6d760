"""The header of a safetensors file, read without any of its values."""

from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from bigtrk.disk.files import check_file
from bigtrk.errors import InputError, reason

LARGEST_HEADER = 8 << 20  # bytes, for some 80,000 tensors
SIZE_BYTES = 8  # a file begins with the size of its header

Shape = tuple[int, ...]


class Stored(NamedTuple):
    """A tensor's type, as safetensors names it ("F32"), and its shape."""

    dtype: str
    shape: Shape


def read_header(path: Path) -> dict[str, Stored]:
    """Reads the tensors of a file by name; checks that together they are as large as the file.

    Raises:
        InputError: the file is missing, damaged, or has more tensors than any model.
    """
    check_file(path)
    try:
        with path.open("rb") as handle:
            size = int.from_bytes(handle.read(SIZE_BYTES), "little")
        if size > LARGEST_HEADER:
            raise ValueError(f"its header would be of {size} bytes")
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Stored(found.get_dtype(), tuple(found.get_shape()))
                for name, found in slices.items()
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: no whole file of tensors ({reason(error)})") from None
