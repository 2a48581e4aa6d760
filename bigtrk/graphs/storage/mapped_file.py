"""The tensors of a safetensors file where they lie: mapped into memory, and not copied.

A page is read when it is first used, and when memory is short it is given up again: the file has
it. A file that is replaced, as bigtrk writes, stays as it was to those who have mapped it.
"""

import mmap
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from bigtrk.disk.files import parse_json

SIZE_BYTES = 8  # a file begins with the size of its header
METADATA = "__metadata__"  # the header's entry that is no tensor
TYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}


class MappedFile:
    """A safetensors file, mapped; metadata: what its header says beside the tensors.

    Raises:
        SafetensorError, OSError, ValueError: the file cannot be read, is cut, lengthened or none.
    """

    def __init__(self, path: Path) -> None:
        # It checks that the tensors follow each other up to the file's end.
        with safe_open(path, framework="np"), path.open("rb") as handle:
            size = int.from_bytes(handle.read(SIZE_BYTES), "little")
            self._header = parse_json(handle.read(size).decode())
            # Private: what is written to a tensor stays in this process.
            self._content = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY)
        self._start = SIZE_BYTES + size
        self.metadata: dict[str, str] = self._header.pop(METADATA, {})

    @property
    def names(self) -> list[str]:
        """Lists the tensors."""
        return list(self._header)

    def tensor(self, name: str) -> Tensor:
        """Returns a tensor, which lies in the file.

        Raises:
            KeyError, TypeError, ValueError: it is of a type that numpy lacks, or leads outside.
        """
        entry = self._header[name]
        start, _ = entry["data_offsets"]
        array: NDArray[np.generic] = np.ndarray(
            entry["shape"], TYPES[entry["dtype"]], self._content, self._start + start
        )
        return torch.from_numpy(array)
