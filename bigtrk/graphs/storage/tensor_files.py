"""Safetensors files in named sections, each with a digest that is checked when it is read.

A file holds tensors named `section/tensor` and one metadata record. Reading a section touches only
that section's bytes, so a rank reads its own part of an event. The record and the digests have a
checksum of their own.

Files are mapped into memory, not copied. A file that is replaced, as bigtrk writes, stays as it was
to those who have mapped it.
"""

import hashlib
import json
import mmap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from bigtrk.disk.files import check_file, parse_json, write_atomically
from bigtrk.errors import InputError, reason
from bigtrk.graphs.event_graph import Section

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


def digest(section: Section) -> str:
    """Returns the SHA-256 over names, types, shapes and bytes of a section's tensors."""
    sha = hashlib.sha256()
    for name in sorted(section):
        tensor = section[name].contiguous()
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def write_sections(path: Path, sections: dict[str, Section], record: dict[str, Any]) -> None:
    """Writes `sections` (types that numpy has) and the JSON-able `record` to `path`, atomically."""
    tensors = {
        f"{section}/{name}": tensor.contiguous()
        for section, content in sections.items()
        for name, tensor in content.items()
    }
    # Of tensors in the same memory, which safetensors does not write, copies are written.
    places = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
    for name, tensor in tensors.items():
        if places[tensor.untyped_storage().data_ptr()] > 1:
            tensors[name] = tensor.clone()
    digests = {section: digest(content) for section, content in sections.items()}
    said = metadata(
        json.dumps(record, allow_nan=False, sort_keys=True), json.dumps(digests, sort_keys=True)
    )
    write_tensors(path, tensors, said)


def write_tensors(path: Path, tensors: Section, said: dict[str, str] | None = None) -> None:
    """Writes a safetensors file, atomically; OSError if the disk refuses."""

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata=said)
        except SafetensorError as error:
            raise OSError(f"{path}: cannot be written ({reason(error)})") from None

    write_atomically(path, write)


def metadata(record: str, digests: str) -> dict[str, str]:
    """Returns the metadata of a file, from the JSON of its record and digests."""
    checksum = hashlib.sha256(f"{record}\n{digests}".encode()).hexdigest()
    return {"bigtrk": record, "digests": digests, "checksum": checksum}


class SectionFile:
    """An open file of sections.

    Raises:
        InputError: the file is missing, cut, lengthened, of an older version, or not written by
            bigtrk; or its record has changed since it was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_file(path)
        try:
            # It checks that the tensors follow each other up to the file's end. Mapped here: each
            # tensor that safetensors 0.8 makes itself leaves an object in memory for ever.
            with safe_open(path, framework="np"), path.open("rb") as handle:
                size = int.from_bytes(handle.read(SIZE_BYTES), "little")
                self._header = parse_json(handle.read(size).decode())
                # Private: what is written to a tensor stays in this process.
                self._content = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY)
            self._start = SIZE_BYTES + size
            found = self._header.pop(METADATA, {})
            if found != metadata(found["bigtrk"], found["digests"]):
                raise ValueError("its record does not match its checksum")
            self.record: dict[str, Any] = parse_json(found["bigtrk"])
            self.digests: dict[str, str] = parse_json(found["digests"])
            if not (isinstance(self.record, dict) and isinstance(self.digests, dict)):
                raise ValueError("its record is not a JSON object")
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise InputError(
                f"{path}: damaged, of an older version, or not a bigtrk file ({reason(error)}); "
                "make it again"
            ) from None

    def read(self, section: str) -> Section:
        """Reads the tensors of `section`, which stay in the file; InputError if there is no such
        section, or its bytes have changed since it was written.
        """
        if section not in self.digests:
            raise InputError(f"{self.path}: has no section {section!r}; make the file again")
        prefix, content = section + "/", {}
        try:
            for name, entry in self._header.items():
                if name.startswith(prefix):
                    place = self._start + entry["data_offsets"][0]
                    array: NDArray[np.generic] = np.ndarray(
                        entry["shape"], TYPES[entry["dtype"]], self._content, place
                    )
                    content[name.removeprefix(prefix)] = torch.from_numpy(array)
            found = digest(content)
        except Exception as error:  # of the type, the shape or the place in the file
            raise InputError(
                f"{self.path}: section {section!r} cannot be read ({reason(error)}); make it again"
            ) from None
        if found != self.digests[section]:
            raise InputError(
                f"{self.path}: section {section!r} does not match its checksum; make it again"
            )
        return content
