"""The files of a checkpoint: manifest, progress, checksums, headers of tensors.

    checkpoints/latest.json                      names the newest whole one
    checkpoints/step-00000120/manifest.json      progress, and each file's size, SHA-256, pieces
    checkpoints/step-00000120/shard-00000.safetensors

Values are stored by the parameter's name and their place in it, so any engine on any number of
ranks can read them. Nothing is pickled. A digest reveals damage, but a forged manifest can have one
that fits: so values have types and ranges, and pieces make up each parameter once.
"""

import hashlib
import json
import math
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bigtrk.config import Count
from bigtrk.disk.files import atomic_path, check_file, disk_errors, read_bytes, unseal
from bigtrk.errors import InputError, one_line, reason
from bigtrk.parallel.engines.engine import AVERAGE
from bigtrk.parallel.engines.optimizers import STATE
from bigtrk.records.metrics import StepRecord
from bigtrk.tracing import traced
from bigtrk.training.guards import LossHistory
from bigtrk.training.run_folder import checkpoint_name
from bigtrk.training.schedule import Best, Plateau

FORMAT = "bigtrk checkpoint 2"
MANIFEST, LATEST = "manifest.json", "latest.json"
LARGEST_MANIFEST = 256 << 20  # bytes: 4,096 ranks, each with a piece of 400 parameters
RANDOM = "random/"  # the states of a rank's generators, by kind of device
KINDS = ("weight", *STATE)  # the kinds of values, in a file as "weight/NAME"
FLOATS = ("F32", "F64")

Shape = tuple[int, ...]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Updates = Annotated[int, Field(ge=0, lt=2**31)]  # kept as float32 by AdamW
Range = tuple[Count, Count, Updates]


@dataclass(frozen=True)
class EpochTotals:
    """Totals over an epoch's steps. Spikes (`left_out`: their step numbers) add only their seconds.
    loss: the sum over steps of loss times events; an event counts once per step that trains it.
    """

    steps: Count = 0
    events: Count = 0
    edges: Count = 0
    loss: float = 0.0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    left_out: tuple[Count, ...] = ()

    def after(self, record: StepRecord) -> "EpochTotals":
        """Returns the totals with the step of `record` added."""
        timed = replace(self, seconds=self.seconds + record.seconds)
        if record.spike:
            return replace(timed, left_out=(*self.left_out, record.step))
        assert record.loss is not None, "what is not finite is not learnt from"
        return replace(
            timed,
            steps=self.steps + 1,
            events=self.events + record.events,
            edges=self.edges + record.edges,
            # Weighted by events, so that a last step with fewer events counts less.
            loss=self.loss + record.loss * record.events,
        )


@dataclass(frozen=True)
class Progress:
    """The progress of a run. epoch: epochs completed; cursor: steps done in the next; step: all."""

    epoch: Count
    cursor: Count
    step: Count
    plateau: Plateau
    history: LossHistory
    totals: EpochTotals
    best: Best | None = None


@dataclass(frozen=True)
class ShardFile:
    """A rank's file. pieces: by parameter, first and end of the stored range, AdamW's updates."""

    file: str
    bytes: Count
    sha256: Digest
    pieces: dict[str, Range]


@dataclass(frozen=True)
class Checkpoint:
    """The content of a manifest. shapes: by the name of the model's parameter. engine,
    configuration and software inform people only; resuming does not read them.
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


class Stored(NamedTuple):
    """A tensor's dtype, in safetensors' names ("F32"), and its shape."""

    dtype: str
    shape: Shape


def read_header(path: Path) -> dict[str, Stored]:
    """Reads the dtype and shape of each tensor in a file; InputError if missing or damaged."""
    check_file(path)
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Stored(found.get_dtype(), tuple(found.get_shape()))
                for name, found in slices.items()
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: is damaged ({reason(error)}); restore it") from None


def shard_name(rank: int) -> str:
    return f"shard-{rank:05d}.safetensors"


def write_shard(
    folder: Path, rank: int, tensors: dict[str, Tensor], pieces: dict[str, Range]
) -> ShardFile:
    """Writes a rank's `tensors` to its file; InputError if the file reads back differently."""
    path, content = folder / shard_name(rank), save(tensors)
    shard = ShardFile(path.name, len(content), hashlib.sha256(content).hexdigest(), pieces)
    with disk_errors(), atomic_path(path) as temporary:
        temporary.write_bytes(content)
    if damage := _damage(folder, shard):
        raise InputError(f"{folder}: {damage} right after it was written; check the disk")
    return shard


def read_checkpoint(folder: Path) -> Checkpoint:
    """Reads a checkpoint's manifest and checks all its files; InputError names the damaged ones."""
    with disk_errors():
        if not (folder / MANIFEST).exists():
            raise InputError(f"{MANIFEST} is missing")
    checkpoint = _decoded(read_bytes(folder / MANIFEST, LARGEST_MANIFEST))
    if checkpoint.name != folder.name:
        raise InputError(f"{MANIFEST} describes another checkpoint, {checkpoint.name}")
    damaged = []
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda shard: _damage(folder, shard), checkpoint.shards)
        for shard in checkpoint.shards:
            with traced(shard.file):
                damaged.append(next(found))
    if any(damaged):
        raise InputError(", ".join(filter(None, damaged)))
    for shard in checkpoint.shards:
        _check_tensors(folder, shard, (*KINDS, AVERAGE) if checkpoint.averaged else KINDS)
    return checkpoint


def _decoded(raw: bytes) -> Checkpoint:
    """Parses a manifest; InputError unless its pieces hold each value of each parameter once."""
    try:
        content = unseal(raw)
    except ValueError as error:
        raise InputError(
            f"{MANIFEST} is damaged or of an older version ({reason(error)})"
        ) from None
    if content.get("format") != FORMAT:
        version = one_line(str(content.get("format")))
        raise InputError(f"{MANIFEST} is of another version ({version}), not {FORMAT!r}")
    try:
        checkpoint = _CHECKPOINT.validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = one_line(".".join(map(str, first["loc"])))
        raise InputError(f"{MANIFEST}: {key}: {one_line(first['msg'])}") from None
    pieces: dict[str, list[Range]] = {name: [] for name in checkpoint.shapes}
    for rank, shard in enumerate(checkpoint.shards):
        if shard.file != shard_name(rank):
            named = one_line(repr(shard.file))
            raise InputError(f"{MANIFEST}: shards.{rank}.file is {named}, not {shard_name(rank)!r}")
        for name, piece in shard.pieces.items():
            pieces.setdefault(name, []).append(piece)
    for name, found in pieces.items():
        shape = checkpoint.shapes.get(name)
        if shape is None or not _make_up(sorted(found), math.prod(shape)):
            raise InputError(
                f"{MANIFEST}: the pieces of {one_line(name)} do not add up to its shape "
                f"{list(shape or ())}, or are of different steps"
            )
    return checkpoint


def _make_up(pieces: list[Range], size: int) -> bool:
    starts, ends = [piece[0] for piece in pieces], [piece[1] for piece in pieces]
    return (
        [*starts, size] == [0, *ends]
        and all(start < end for start, end, _ in pieces)
        and len({updates for *_, updates in pieces}) <= 1
    )


def _damage(folder: Path, shard: ShardFile) -> str | None:
    """Describes what is wrong with a file; None if it is whole."""
    path = folder / shard.file
    try:
        if not path.exists():
            return f"{shard.file} is missing"
        check_file(path)
        size = path.stat().st_size
        if size != shard.bytes:
            return f"{shard.file} has {size} bytes instead of {shard.bytes}"
        with path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        return f"{shard.file}: {error.strerror}"
    except InputError as error:
        return str(error)
    return None if digest == shard.sha256 else f"{shard.file} does not match its checksum"


def _check_tensors(folder: Path, shard: ShardFile, kinds: Collection[str]) -> None:
    """Raises InputError unless the file holds exactly the shard's pieces, in each of `kinds`."""
    stored = read_header(folder / shard.file)
    found = {name: x for name, x in stored.items() if not name.startswith(RANDOM)}
    expected = {
        f"{kind}/{name}": (stop - start,)
        for name, (start, stop, _) in shard.pieces.items()
        for kind in kinds
    }
    for name in (*expected, *found):
        tensor = found.get(name)
        if tensor is None or tensor.dtype not in FLOATS or tensor.shape != expected.get(name):
            raise InputError(f"{shard.file}: tensor '{one_line(name)}' does not match {MANIFEST}")
