"""A checkpoint on disk: a file of each rank's pieces, and a manifest that vouches for them.

    checkpoints/latest.json                      names the newest whole one
    checkpoints/step-00000120/manifest.json      progress, and each file's size, SHA-256, pieces
    checkpoints/step-00000120/shard-00000.safetensors

Values are stored by the parameter's name and their place in it, so any engine on any number of
ranks can read them. Nothing is pickled.
"""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.files import atomic_path, disk_errors
from bigtrk.tracing import traced
from bigtrk.training.progress import Progress

FORMAT = "bigtrk checkpoint 1"
MANIFEST, LATEST = "manifest.json", "latest.json"
CHUNK = 2**22  # bytes hashed at once


@dataclass(frozen=True)
class Shard:
    """A file as the manifest has it. pieces: of each parameter, the first value that is in the
    file, the one after the last, and AdamW's count of updates.
    """

    file: str
    bytes: int
    sha256: str
    pieces: dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Checkpoint:
    """What a manifest says. shapes: of the model's parameters, by name.

    Resuming needs neither the engine nor the configuration nor the versions of software that wrote
    it; they are for people.
    """

    progress: Progress
    shapes: dict[str, tuple[int, ...]]
    shards: tuple[Shard, ...]
    data: str
    engine: str
    configuration: dict[str, Any]
    software: dict[str, Any]

    @property
    def name(self) -> str:
        return f"step-{self.progress.step:08d}"


def shard_name(rank: int) -> str:
    return f"shard-{rank:05d}.safetensors"


def write_shard(
    folder: Path, rank: int, tensors: dict[str, Tensor], pieces: dict[str, tuple[int, int, int]]
) -> Shard:
    """Write a rank's `tensors` to disk and read them back.

    Raises:
        InputError: it cannot be written, or reads back otherwise.
    """
    path, content = folder / shard_name(rank), save(tensors)
    shard = Shard(path.name, len(content), hashlib.sha256(content).hexdigest(), pieces)
    with disk_errors(), atomic_path(path) as temporary:
        temporary.write_bytes(content)
    damage = _damage(folder, shard)
    if damage:
        raise InputError(f"{folder}: {damage} as soon as it is written; is the disk sound?")
    return shard


def encode(content: dict[str, Any]) -> bytes:
    """A manifest's bytes: its content and the content's digest."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return (json.dumps({"content": content, "sha256": digest}, indent=1) + "\n").encode()


def read_checkpoint(folder: Path) -> Checkpoint:
    """The manifest of `folder`, its digest and that of all files checked.

    Raises:
        InputError: a file is missing or not as it was written; names all that are.
    """
    checkpoint = _parse(_manifest(folder))
    damaged = []
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda shard: _damage(folder, shard), checkpoint.shards)
        for shard in checkpoint.shards:
            with traced(shard.file):
                damage = next(found)
            if damage:
                damaged.append(damage)
    if damaged:
        raise InputError(", ".join(damaged))
    return checkpoint


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        raw = (folder / MANIFEST).read_bytes()
        content = json.loads(raw)["content"]
        # The same content in other bytes is damage, too.
        if raw != encode(content):
            raise InputError(f"{MANIFEST} does not match its checksum")
    except OSError as error:
        raise InputError(f"{MANIFEST}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InputError(f"{MANIFEST} is damaged") from None
    if content["format"] != FORMAT:
        raise InputError(f"{MANIFEST} is of another version ({content['format']})")
    return dict(content)


def _parse(content: dict[str, Any]) -> Checkpoint:
    """Of content that is as it was written."""
    shapes = {name: tuple(shape) for name, shape in content["shapes"].items()}
    shards = tuple(
        Shard(**{**shard, "pieces": {name: tuple(p) for name, p in shard["pieces"].items()}})
        for shard in content["shards"]
    )
    known = {**content, "shapes": shapes, "shards": shards}
    del known["format"]
    return Checkpoint(**{**known, "progress": Progress.parse(content["progress"])})


def _damage(folder: Path, shard: Shard) -> str | None:
    """What is wrong with a file, if anything."""
    digest, size = hashlib.sha256(), 0
    try:
        with (folder / shard.file).open("rb") as handle:
            while chunk := handle.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        return f"{shard.file}: {error.strerror}"
    if size != shard.bytes:
        return f"{shard.file} has {size} bytes instead of {shard.bytes}"
    if digest.hexdigest() != shard.sha256:
        return f"{shard.file} does not match its checksum"
    return None
