"""The manifest of a checkpoint: written with its digest, and checked in every part when read.

The digest reveals damage, but whoever forges a manifest can make one that fits. So every value has
a type and a range, file names are those of the ranks, and the pieces make up each parameter once.
"""

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from bigtrk.config import Count
from bigtrk.disk.files import unseal
from bigtrk.errors import InputError, one_line, reason
from bigtrk.training.checkpoint.progress import Progress
from bigtrk.training.run_folder import checkpoint_name

FORMAT = "bigtrk checkpoint 2"
MANIFEST, LATEST = "manifest.json", "latest.json"

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Updates = Annotated[int, Field(ge=0, lt=2**31)]  # kept as float32 by AdamW
Piece = tuple[Count, Count, Updates]


@dataclass(frozen=True)
class ShardFile:
    """A file in the manifest. pieces: for each parameter, the first value that is in the file, the
    one after the last, and AdamW's count of updates.
    """

    file: str
    bytes: Count
    sha256: Digest
    pieces: dict[str, Piece]


@dataclass(frozen=True)
class Checkpoint:
    """The content of a manifest. shapes: those of the model's parameters, by name. averaged: says
    whether there are averaged weights, too.

    Resuming needs neither the engine nor the configuration nor the versions of software that wrote
    it; they are for people.
    """

    progress: Progress
    shapes: dict[str, tuple[Count, ...]]
    shards: tuple[ShardFile, ...]
    data: str
    engine: str
    configuration: dict[str, Any]
    software: dict[str, Any]
    averaged: bool = False

    @property
    def name(self) -> str:
        return checkpoint_name(self.progress.step)


_CHECKPOINT = TypeAdapter(Checkpoint)


def shard_name(rank: int) -> str:
    return f"shard-{rank:05d}.safetensors"


def decode(raw: bytes) -> Checkpoint:
    """Decodes the bytes of a manifest.

    Raises:
        InputError: they have changed since they were written, or describe no possible checkpoint.
    """
    content = _content(raw)
    if content.get("format") != FORMAT:
        version = one_line(str(content.get("format")))
        raise InputError(f"{MANIFEST} is of another version ({version})")
    try:
        checkpoint = _CHECKPOINT.validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = one_line(".".join(map(str, first["loc"])))
        raise InputError(f"{MANIFEST}: {key}: {one_line(first['msg'])}") from None
    _check_files(checkpoint)
    _check_pieces(checkpoint)
    return checkpoint


def _content(raw: bytes) -> dict[str, Any]:
    try:
        content: dict[str, Any] = unseal(raw)
    except ValueError as error:
        raise InputError(
            f"{MANIFEST} is damaged, or of an older version ({reason(error)})"
        ) from None
    return content


def _check_files(checkpoint: Checkpoint) -> None:
    """Checks that each rank's file has its own name, which leads nowhere else."""
    for rank, shard in enumerate(checkpoint.shards):
        if shard.file != shard_name(rank):
            raise InputError(
                f"{MANIFEST}: shards.{rank}.file: is {one_line(repr(shard.file))}, not "
                f"{shard_name(rank)!r}"
            )


def _check_pieces(checkpoint: Checkpoint) -> None:
    """Checks that each parameter's pieces hold its values once each, after equally many updates."""
    pieces: dict[str, list[Piece]] = defaultdict(list)
    for shard in checkpoint.shards:
        for name, piece in shard.pieces.items():
            pieces[name].append(piece)
    for name in (*checkpoint.shapes, *pieces):
        shape = checkpoint.shapes.get(name)
        if shape is None or not _make_up(pieces[name], math.prod(shape)):
            raise InputError(
                f"{MANIFEST}: the pieces of {one_line(name)} do not make up its shape "
                f"({list(shape or ())}), or differ in their updates"
            )


def _make_up(pieces: list[Piece], size: int) -> bool:
    end = 0
    for start, stop, _ in sorted(pieces):
        if start != end or stop <= start:
            return False
        end = stop
    return end == size and len({updates for *_, updates in pieces}) <= 1
