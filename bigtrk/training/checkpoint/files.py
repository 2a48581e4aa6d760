"""A checkpoint on disk: a file of each rank's pieces, and a manifest that vouches for them.

    checkpoints/latest.json                      names the newest whole one
    checkpoints/step-00000120/manifest.json      progress, and each file's size, SHA-256, pieces
    checkpoints/step-00000120/shard-00000.safetensors

Values are stored by the parameter's name and their place in it, so any engine on any number of
ranks can read them. Nothing is pickled.
"""

import hashlib
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from bigtrk.disk.files import atomic_path, disk_errors
from bigtrk.errors import InputError, one_line
from bigtrk.parallel.engines.pieces import AVERAGE, STATE
from bigtrk.tracing import traced
from bigtrk.training.checkpoint.manifest import (
    MANIFEST,
    Checkpoint,
    Piece,
    ShardFile,
    decode,
    shard_name,
)
from bigtrk.training.checkpoint.tensor_headers import read_header

RANDOM = "random/"  # the states of a rank's generators, by kind of device
KINDS = ("weight", *STATE)  # the kinds of values, in a file as "weight/NAME"
FLOATS = ("F32", "F64")
CHUNK = 2**22  # bytes hashed at once
LARGEST_MANIFEST = 256 << 20  # bytes: 4,096 ranks, each with a piece of 400 parameters


def write_shard(
    folder: Path, rank: int, tensors: dict[str, Tensor], pieces: dict[str, Piece]
) -> ShardFile:
    """Writes a rank's `tensors` to disk and reads them back.

    Raises:
        InputError: the file cannot be written, or reads back differently.
    """
    path, content = folder / shard_name(rank), save(tensors)
    shard = ShardFile(path.name, len(content), hashlib.sha256(content).hexdigest(), pieces)
    with disk_errors(), atomic_path(path) as temporary:
        temporary.write_bytes(content)
    damage = _damage(folder, shard)
    if damage:
        raise InputError(f"{folder}: {damage} as soon as it is written; is the disk sound?")
    return shard


def read_checkpoint(folder: Path) -> Checkpoint:
    """Reads the manifest of `folder`; checks its digest and those of all files, and that they hold
    what it says.

    Raises:
        InputError: a file is missing or has changed; all such files are named. Or the manifest
            belongs to another folder, or does not fit the files.
    """
    checkpoint = decode(_manifest(folder))
    if checkpoint.name != folder.name:
        raise InputError(f"{MANIFEST} is that of {checkpoint.name}")
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
    for shard in checkpoint.shards:
        _check_tensors(folder, shard, (*KINDS, AVERAGE) if checkpoint.averaged else KINDS)
    return checkpoint


def _manifest(folder: Path) -> bytes:
    path = folder / MANIFEST
    try:
        _refuse_special(path)
        with path.open("rb") as handle:
            raw = handle.read(LARGEST_MANIFEST + 1)
    except OSError as error:
        raise InputError(f"{MANIFEST}: {error.strerror}") from None
    if len(raw) > LARGEST_MANIFEST:
        raise InputError(f"{MANIFEST} is larger than {LARGEST_MANIFEST >> 20} MiB")
    return raw


def _refuse_special(path: Path) -> None:
    """Refuses what is no regular file, such as a pipe, which may have no end."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path.name} is not a file")


def _damage(folder: Path, shard: ShardFile) -> str | None:
    """Says what is wrong with a file, if anything."""
    path, digest = folder / shard.file, hashlib.sha256()
    try:
        _refuse_special(path)
        size = path.stat().st_size
        if size != shard.bytes:
            return f"{shard.file} has {size} bytes instead of {shard.bytes}"
        with path.open("rb") as handle:
            while chunk := handle.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        return f"{shard.file}: {error.strerror}"
    except InputError as error:
        return str(error)
    if digest.hexdigest() != shard.sha256:
        return f"{shard.file} does not match its checksum"
    return None


def _check_tensors(folder: Path, shard: ShardFile, kinds: Collection[str]) -> None:
    """Checks that the file holds all these kinds of values of the shard's pieces, and no others."""
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
            raise InputError(f"{shard.file}: {one_line(name)} is not as {MANIFEST} describes it")
