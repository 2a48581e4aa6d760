"""Safetensors files in named sections, each with a digest that is checked when it is read.

A file holds tensors named `section/tensor` and one metadata record. Reading a section touches
only that section's bytes (memory mapped), so a rank reads its own share of an event.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bigtrk.errors import InputError, reason
from bigtrk.files import check_file, parse_json, write_atomically

Section = dict[str, Tensor]
# Of what sections are made, by the names that safetensors gives them.
_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I32": torch.int32,
    "I64": torch.int64,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


def digest(section: Section) -> str:
    """SHA-256 over names, types, shapes and bytes of a section's tensors."""
    sha = hashlib.sha256()
    for name in sorted(section):
        tensor = section[name].contiguous()
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def write_sections(path: Path, sections: dict[str, Section], record: dict[str, Any]) -> None:
    """Write `sections` and the JSON-able `record` to `path`, atomically."""
    tensors = {
        f"{section}/{name}": tensor.contiguous()
        for section, content in sections.items()
        for name, tensor in content.items()
    }
    digests = {section: digest(content) for section, content in sections.items()}
    metadata = {
        "bigtrk": json.dumps(record, allow_nan=False, sort_keys=True),
        "digests": json.dumps(digests, sort_keys=True),
    }
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=metadata))


class SectionFile:
    """An open file of sections.

    Raises:
        InputError: the file is missing, truncated, or not written by bigtrk.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_file(path)
        try:
            self._bytes, self._header = _mapped(path)
            metadata = self._header.pop("__metadata__")
            self.record: dict[str, Any] = _json_object(metadata["bigtrk"])
            self.digests: dict[str, str] = _json_object(metadata["digests"])
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise InputError(
                f"{path}: damaged, or not a bigtrk file ({reason(error)}); make it again"
            ) from None

    def read(self, section: str) -> Section:
        """The tensors of `section`, their digest checked.

        Raises:
            InputError: there is no such section, or its bytes have changed since it was written.
        """
        prefix = section + "/"
        if section not in self.digests:
            raise InputError(f"{self.path}: has no section {section!r}; make the file again")
        try:
            content = {
                name.removeprefix(prefix): self._tensor(entry)
                for name, entry in self._header.items()
                if name.startswith(prefix)
            }
            found = digest(content)
        except Exception as error:  # of a type that sections do not have, or not aligned
            raise InputError(
                f"{self.path}: section {section!r} cannot be read ({reason(error)}); make it again"
            ) from None
        if found != self.digests[section]:
            raise InputError(
                f"{self.path}: section {section!r} does not match its checksum; make it again"
            )
        return content

    def _tensor(self, entry: dict[str, Any]) -> Tensor:
        first, last = entry["data_offsets"]
        return self._bytes[first:last].view(_TYPES[entry["dtype"]]).view(entry["shape"])


def _mapped(path: Path) -> tuple[Tensor, dict[str, Any]]:
    """The data of a safetensors file [bytes], memory mapped, and its header.

    Safetensors checks the file and no more: each tensor that version 0.8 reads leaves two integers
    in memory for ever, which came to 1 kB in every step of a training.
    """
    with safe_open(path, framework="np"):
        pass
    content = torch.from_file(str(path), size=path.stat().st_size, dtype=torch.uint8)
    start = 8 + int.from_bytes(content[:8].numpy().tobytes(), "little")
    header: dict[str, Any] = json.loads(content[8:start].numpy().tobytes())
    return content[start:], header


def _json_object(text: str) -> dict[str, Any]:
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("its record is not a JSON object")
    return content
