"""Compiles C code once per machine and keeps the libraries in the user's cache.

A cached library is loaded only if the user or root owns it and its folder, nobody else may write to
them, and it ends with the SHA-256 of all bytes before, which the loader ignores.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from bigtrk.console import warn_once
from bigtrk.disk.files import atomic_path
from bigtrk.errors import reason
from bigtrk.machine import cpu_info

FLAGS = ["-O3", "-fopenmp", "-shared", "-fPIC"]
NATIVE = "-march=native"  # the library then needs this processor's instructions
_DIGEST_BYTES = hashlib.sha256().digest_size
_REMEDY = "set XDG_CACHE_HOME to a folder of yours"
_SAID = "BIGTRK_SAID_PLAIN"  # set if the parent process has already warned


class Build(NamedTuple):
    """A compiled library, if that worked; its path, if it is cached; the problem, if it is not."""

    library: ctypes.CDLL | None
    path: Path | None = None
    problem: str | None = None


def compiled(
    name: str, source: Path, headers: Sequence[Path] = (), flags: Sequence[str] = ()
) -> ctypes.CDLL | None:
    """Compiles `source` into the library `name`; on failure returns None and says why on stderr.

    The library uses torch's own OpenMP runtime, which is already in the process.
    """
    found = build(name, source, headers, flags)
    if found.library is None:
        _warn_of_plain(found.problem)
    elif found.path is None:
        warn_once("compiled code", f"each process compiles the C code anew: {found.problem}")
    return found.library


def warn_without_compiler() -> None:
    """Warns if there is no C compiler; processes started later do not repeat the warning."""
    try:
        compiler()
    except OSError as error:
        _warn_of_plain(reason(error))
        os.environ[_SAID] = "1"


def _warn_of_plain(problem: str | None) -> None:
    if _SAID not in os.environ:
        said = "everything works, but slower, without compiled code"
        warn_once("compiled code", f"{said}: {problem}")


def pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    """Returns the addresses of C-contiguous arrays, for compiled functions."""
    assert all(array.flags.c_contiguous for array in arrays)
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


def build(
    name: str, source: Path, headers: Sequence[Path] = (), flags: Sequence[str] = ()
) -> Build:
    """Compiles like `compiled`, in a temporary folder if the cache fails; returns any problem."""
    try:
        command = [*compiler(), *FLAGS, *flags, str(source)]
        file = f"{name}-{_key([source, *headers], command)}.so"
    except OSError as error:
        return Build(None, problem=reason(error))
    try:
        path = _cache_folder() / file
        return Build(_library(path, command), path)
    except OSError as error:
        problem = reason(error)
    try:
        # NFS keeps a file that is mapped, and therefore its folder.
        with TemporaryDirectory(prefix="bigtrk-", ignore_cleanup_errors=True) as folder:
            return Build(_library(Path(folder) / file, command), problem=problem)
    except OSError as error:
        there = reason(error)
        both = problem if there == problem else f"{problem}; in a temporary folder: {there}"
        return Build(None, problem=both)


def compiler() -> list[str]:
    """Returns the C compiler, from CC or else cc, as a command with arguments ("ccache gcc")."""
    named = os.environ.get("CC", "").strip() or "cc"
    try:
        program, *arguments = shlex.split(named)
    except ValueError as error:
        raise FileNotFoundError(f"no C compiler: CC={named}: {error}; correct CC") from None
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(
            f"no C compiler ({program} is not there or not executable); install gcc, or set CC"
        )
    return [path, *arguments]


def _key(sources: Sequence[Path], command: Sequence[str]) -> str:
    """Hashes all that determines the library: sources, compiler, flags and machine."""
    facts = [*(source.read_text() for source in sources), *command, platform.machine()]
    if NATIVE in command:  # unlike hosts may share a home folder
        facts.append(cpu_info("flags") or cpu_info("Features") or "")  # of x86, of ARM
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _cache_folder() -> Path:
    """Makes and returns the cache: in $XDG_CACHE_HOME if that is absolute, else in ~/.cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        cache = Path(os.path.expanduser("~/.cache"))  # noqa: PTH111  # which may know no home
    if not cache.is_absolute():
        raise FileNotFoundError(f"user {os.getuid()} has no home folder: {_REMEDY}")
    folder = cache / "bigtrk"
    for place in (*reversed(folder.parents), folder):
        try:
            place.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise OSError(f"{place}: cannot be made ({error.strerror}); {_REMEDY}") from None
    return folder


def _library(path: Path, command: Sequence[str]) -> ctypes.CDLL:
    """Loads the library at `path`; compiles it first if it is missing or has been changed."""
    _check_private(path.parent, path.parent.stat())
    for above in path.parent.resolve().parents:
        state = above.stat()
        if not state.st_mode & stat.S_ISVTX:  # as that of /tmp
            _check_private(above, state, of_anybody=True)
    if os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
        raise PermissionError(f"{path.parent}: its disk is mounted noexec; {_REMEDY}")
    try:
        _check(path)
    except OSError:
        _compile(path, command)
        _check(path)
    return ctypes.CDLL(str(path))


def _check(path: Path) -> None:
    """Raises OSError if others own the library or may write it, or its checksum is wrong."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        _check_private(path, os.fstat(file.fileno()))
        content = file.read()
    made, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(made).digest() != digest:
        raise OSError(f"{path}: was changed after it was made; remove it")


def _check_private(place: Path, state: os.stat_result, of_anybody: bool = False) -> None:
    """Raises PermissionError if other users could change `place`."""
    if state.st_uid not in (0, os.geteuid()) and not of_anybody:
        said = f"{place}: belongs to user {state.st_uid}, who could change it"
        raise PermissionError(f"{said}; {_REMEDY}")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{place}: others may write to it; chmod go-w {place}, or {_REMEDY}")


def _compile(path: Path, command: Sequence[str]) -> None:
    """Compiles the library and adds its digest. Ranks that do so at once replace each other's."""
    with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        output = Path(folder) / "library.so"
        done = subprocess.run(
            [*command, "-o", str(output), "-lm"],
            # Its intermediate files are as safe here as its result.
            env={**os.environ, "TMPDIR": folder},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        made = output.read_bytes() if output.exists() and not done.returncode else b""
    if not made:
        lines = done.stderr.splitlines() or [f"it ends with status {done.returncode}"]
        said = next((line for line in lines if "error" in line), lines[0])
        raise OSError(f"{command[0]} cannot compile the C code ({said}); install gcc, or set CC")
    with atomic_path(path, mode=0o600) as temporary:
        temporary.write_bytes(made + hashlib.sha256(made).digest())
