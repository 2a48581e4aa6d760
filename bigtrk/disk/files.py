"""Writes files and folders that are either absent or whole: temporary name, fsync, rename."""

import errno
import hashlib
import json
import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

from bigtrk.errors import InputError, damage_told, disk_reason

MAX_JSON_BYTES = 64 << 20  # a run's description names each event trained on: a million of them
MAX_DEPTH = 100  # Python reads ten times deeper nesting, but cannot write all of that

# The errors of file systems that lack an operation (object stores, CIFS, FAT, WSL).
_LACKING = {errno.EPERM, errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS}


@contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Adds the name of `path` to an OSError of the block that names no file, or `temporary`."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary or "")):
            error.filename = str(path)
        raise


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turns an OSError of the block (the disk is full, read-only, gone) into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(disk_reason(error)) from None


@contextmanager
def _if_known() -> Iterator[None]:
    """Ignores the error of an operation that the file system lacks and data do not need."""
    try:
        yield
    except OSError as error:
        if error.errno not in _LACKING:
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Makes a rename inside `folder` survive a power loss, if its file system can do so."""
    with naming(folder), _if_known():
        _sync(folder)


@contextmanager
def atomic_path(
    path: Path, mode: int = 0o666, place: Callable[[Path, Path], object] = os.replace
) -> Iterator[Path]:
    """Yields a temporary path next to `path`. When the block ends, the file there is fsynced, gets
    the permissions of `mode` less the umask, and is renamed to `path` (or `place` places it). The
    folder must exist. If the block raises, `path` is left as it was. A symbolic link is replaced;
    InputError for a device, pipe or socket.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{path}: is a device, pipe or socket; name a file")
    # Host and process in the name separate two writers of one file (srun tasks).
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.tmp")
    with naming(path, temporary):
        # A killed process may have left a file, or somebody placed a link: touch must not follow.
        temporary.unlink(missing_ok=True)
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            _sync(temporary)
            os.umask(umask := os.umask(0))  # it can only be read by setting it
            # safetensors makes its files private to their owner; colleagues read them too.
            with _if_known():
                temporary.chmod(mode & ~umask)
            place(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary path, then renames that file to `path`; makes its folder."""
    if path.parent.is_file():
        raise InputError(f"{path.parent}: is a file, but must be a folder; name another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        write(temporary)


def check_output_name(path: Path, *endings: str) -> Path:
    """Returns `path`, a file to write; InputError for a folder or a name with other `endings`."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it, such as {path}/mine{endings[0]}")
    if not path.name.endswith(endings):
        raise InputError(f"{path}: its name must end with {' or '.join(endings)}; change it")
    return path


def _indented(content: Any) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def write_json(path: Path, content: Any) -> None:
    """Writes `content` as indented JSON, atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(_indented(content)))


def write_new_json(path: Path, content: Any) -> None:
    """Writes `content` as indented JSON, atomically; FileExistsError if `path` exists."""

    def place_new(temporary: Path, path: Path) -> None:
        try:
            os.link(temporary, path)  # unlike a rename it replaces nothing
        except OSError as error:
            if error.errno not in _LACKING:
                raise
            path.touch(exist_ok=False)  # of two processes one makes it
            temporary.replace(path)

    with atomic_path(path, place=place_new) as temporary:
        temporary.write_text(_indented(content))


def unlinked(path: Path) -> Path:
    """Returns `path`; InputError if it is a symbolic link, which may lead to others' files."""
    if path.is_symlink():
        raise InputError(f"{path}: is a symbolic link, which may lead to others' files; remove it")
    return path


def open_to_append(path: Path) -> TextIO:
    """Opens a text file for appending, and makes it if missing; InputError for a symbolic link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(unlinked(path), flags, 0o666), "a")


_SEAL = b',\n "sha256": "'


def seal(content: dict[str, Any]) -> bytes:
    """Encodes `content` as indented JSON; its last entry, "sha256", is a checksum of the rest."""
    return _sealed(_indented(content).encode().removesuffix(b"\n}\n"))


def unseal(raw: bytes) -> dict[str, Any]:
    """Decodes the bytes of `seal`; ValueError if the checksum is missing or does not match."""
    before, found, _ = raw.rpartition(_SEAL)
    if not found:
        raise ValueError("it has no checksum")
    if raw != _sealed(before):
        raise ValueError("it does not match its checksum")
    content: dict[str, Any] = parse_json(raw.decode())
    del content["sha256"]
    return content


def _sealed(text: bytes) -> bytes:
    return text + _SEAL + hashlib.sha256(text).hexdigest().encode() + b'"\n}\n'


def by_numbers(name: str) -> tuple[list[str | int], str]:
    """Returns a sort key that orders names by the numbers in them: event2 before event10."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if odd % 2 else part for odd, part in enumerate(parts)], name


def check_file(path: Path, piped: bool = False) -> None:
    """Raises InputError if `path` is missing or no file; `piped` allows a pipe of this process."""
    if not path.exists():
        raise InputError(f"{path}: no such file; correct the path, or make the file again")
    if not path.is_file() and not (piped and is_own_pipe(path)):
        raise InputError(f"{path}: exists, but is not a file; name a file, or remove what is there")


STDIN = Path("/dev/stdin")


def is_own_pipe(path: Path) -> bool:
    """True for a pipe that this process was started with, such as standard input."""
    folders = Path("/dev/fd"), Path("/proc/self/fd")
    return path.is_fifo() and (path == STDIN or path.parent in folders)


def read_bytes(path: Path, most: int | None = None, piped: bool = False) -> bytes:
    """Returns a file's content; InputError if it exceeds `most` bytes. piped: see `check_file`."""
    try:
        check_file(path, piped)
        with path.open("rb") as handle:
            content = handle.read(-1 if most is None else most + 1)
    except OSError as error:
        said = f"{path}: cannot be read ({error.strerror}); check its permissions"
        raise InputError(said) from None
    if most is not None and len(content) > most:
        raise InputError(f"{path}: is larger than the {most >> 20} MiB allowed; name another file")
    return content


def read_json(path: Path) -> Any:
    """Reads a JSON file of limited size; InputError if it is not what `parse_json` accepts."""
    content = read_bytes(path, MAX_JSON_BYTES)
    with damage_told(f"{path}: is not valid JSON", "correct the file, or make it again"):
        return parse_json(content.decode())


def parse_json(text: str) -> Any:
    """Parses JSON text; ValueError for NaN, infinity and other content `checked` refuses."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    try:
        return checked(json.loads(text, parse_constant=refuse))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def checked(content: Any, depth: int = MAX_DEPTH) -> Any:
    """Returns JSON's content; ValueError if it is too deep, infinite, or no valid Unicode."""
    if depth == 0:
        raise ValueError("it is nested too deeply")
    if isinstance(content, str) and not content.isascii():
        content.encode()  # raises UnicodeEncodeError, which is a ValueError
    elif isinstance(content, float) and math.isinf(content):  # 1e999 is JSON
        raise ValueError("a number is too large for 64 bits")
    elif isinstance(content, dict | list):
        for value in content:
            checked(value, depth - 1)
            if isinstance(content, dict):
                checked(content[value], depth - 1)
    return content


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yields an empty temporary folder next to `path`. When the block ends, its files are fsynced,
    and it replaces `path` with all its content. If the block raises, `path` is left as it was.
    """
    unlinked(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{platform.node()}.{os.getpid()}"
    temporary, aside = (path.with_name(f".{path.name}.{writer}.{end}") for end in ("tmp", "old"))
    for left in (temporary, aside):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)
    with naming(path, temporary):
        temporary.mkdir()
        try:
            yield temporary
            for made in (*temporary.rglob("*"), temporary):
                (sync_folder if made.is_dir() else _sync)(made)
            if path.exists():
                path.rename(aside)
            temporary.rename(path)
            sync_folder(path.parent)
        finally:
            if aside.exists() and not path.exists():
                aside.rename(path)
            for left in (temporary, aside):
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder like `whole_folder`; InputError unless `path` is new or empty."""
    if path.is_symlink() or path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise InputError(f"{path}: exists already; remove it, or name a new folder")
    with whole_folder(path) as temporary:
        yield temporary


def claim_folder(
    out: Path, record: str, parameters: Mapping[str, Any], options: str = "options"
) -> None:
    """Writes the parameters of a folder's files to `out`/record, or checks that they are the same
    as there, so that stopped work can continue. options: those that set parameters, for messages.
    Raises InputError if `out` holds other files, or files that were made with other parameters.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; name a folder")
    with disk_errors():
        out.mkdir(parents=True, exist_ok=True)
    # Not counted: the record and temporary files that a failed command may have left.
    others = any(path.name != record and not path.name.startswith(".") for path in out.iterdir())
    if not others:
        write_json(out / record, parameters)
    elif not (out / record).exists():
        raise InputError(f"{out}: is not empty; name a new folder, or an empty one")
    elif read_json(out / record) != parameters:
        raise InputError(
            f"{out}: its files were made with other options (see {record} there); give the same "
            f"{options} to add events, or name another folder"
        )
