"""Code in C, compiled once per machine and kept in the user's cache."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from bigtrk.console import warn_once
from bigtrk.disk.cache import cache_folder, make_private, open_private
from bigtrk.disk.files import atomic_path
from bigtrk.errors import reason

FLAGS = ["-O3", "-fopenmp", "-shared", "-fPIC"]
NATIVE = "-march=native"  # with it a library is for processors with the instructions of this one
_DIGEST_BYTES = hashlib.sha256().digest_size


class Build(NamedTuple):
    """A library, if there is one; its place, if it is kept; and the problem if it is not."""

    library: ctypes.CDLL | None
    path: Path | None = None
    problem: str | None = None


def compiled(
    name: str, source: Path, headers: Sequence[Path] = (), flags: Sequence[str] = ()
) -> ctypes.CDLL | None:
    """Compiles `source` into the library `name`, or returns None and says why on stderr.

    torch's own OpenMP runtime is already in the process, and the library uses it.
    """
    found = build(name, source, headers, flags)
    if found.library is None:
        warn_once("compiled code", f"plain passes, and compiled ones are faster: {found.problem}")
    elif found.path is None:
        warn_once("compiled code", f"passes compiled for this process alone: {found.problem}")
    return found.library


def pointers(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    """Returns where arrays begin, as compiled functions take them; each is contiguous."""
    assert all(array.flags.c_contiguous for array in arrays)
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


def build(
    name: str, source: Path, headers: Sequence[Path] = (), flags: Sequence[str] = ()
) -> Build:
    """Compiles like `compiled`, and tells where it is kept. The next process retries a failure.

    Where the user's cache cannot be used, the library is made in a temporary folder of this
    process: that takes seconds once, while plain passes would take longer in each step.
    """
    try:
        command = [*compiler(), *FLAGS, *flags, str(source)]
        file = f"{name}-{_key([source, *headers], command)}.so"
    except OSError as error:
        return Build(None, problem=reason(error))
    try:
        path = cache_folder() / file
        return Build(_library(path, command), path)
    except OSError as error:
        return _build_apart(file, command, reason(error))


def _build_apart(file: str, command: Sequence[str], problem: str) -> Build:
    """Builds a library for this process alone, since the cache has a `problem`."""
    try:
        # NFS keeps a file that is mapped, and therefore its folder.
        with TemporaryDirectory(prefix="bigtrk-", ignore_cleanup_errors=True) as folder:
            return Build(_library(Path(folder) / file, command), problem=problem)
    except OSError as error:
        there = reason(error)
        both = problem if there == problem else f"{problem}; in a temporary folder: {there}"
        return Build(None, problem=both)


def compiler() -> list[str]:
    """Returns the C compiler as a command with arguments, such as "ccache gcc": CC's, else cc.

    Raises:
        OSError: there is no compiler.
    """
    named = os.environ.get("CC", "").strip() or "cc"
    try:
        program, *arguments = shlex.split(named)
    except ValueError as error:
        raise FileNotFoundError(f"no C compiler: CC={named}: {error}") from None
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(f"no C compiler: {program} is not there or not executable")
    return [path, *arguments]


def _key(sources: Sequence[Path], command: Sequence[str]) -> str:
    """Hashes what determines the result: the sources, the compiler, its flags and the machine."""
    texts = [source.read_text() for source in sources]
    facts = [*texts, *command, platform.machine(), *([_cpu_flags()] if NATIVE in command else [])]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _cpu_flags() -> str:
    """Returns the instruction sets of this CPU, since unlike hosts may share a home folder."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _library(path: Path, command: Sequence[str]) -> ctypes.CDLL:
    make_private(path.parent)
    if os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
        raise PermissionError(f"{path.parent}: its file system is mounted noexec")
    try:
        descriptor = _verified(path)
    except OSError:  # it is not made yet, or has changed since
        _compile(path, command)
        descriptor = _verified(path)
    return _mapped(path, descriptor)


def _compile(path: Path, command: Sequence[str]) -> None:
    """Makes a library that ends with the SHA-256 of all before, which the loader does not read.

    Ranks that make it at the same time replace each other's, library and digest at once.
    """
    with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        made = _output(command, Path(folder))
    with atomic_path(path, mode=0o600) as temporary:
        temporary.write_bytes(made + hashlib.sha256(made).digest())


def _output(command: Sequence[str], folder: Path) -> bytes:
    """Returns what the compiler makes, in a folder that nothing else uses."""
    output = folder / "library.so"
    done = subprocess.run(
        [*command, "-o", str(output), "-lm"],
        # Its intermediate files are as safe here as its result.
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode or not output.exists() or not (made := output.read_bytes()):
        raise OSError(f"{command[0]} made no library: {_complaint(done)}")
    return made


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.splitlines()
    errors = [line for line in lines if "error" in line]
    return next(iter(errors or lines), f"it says nothing, and ends with status {done.returncode}")


def _verified(path: Path) -> int:
    """Returns a descriptor of a library that has not changed since it was made: a cut one would end
    the process (SIGBUS) when it is mapped.
    """
    descriptor = open_private(path)
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read()
    made, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(made).digest() != digest:
        os.close(descriptor)
        raise OSError(f"{path}: is not as it was made")
    return descriptor


def _mapped(path: Path, descriptor: int) -> ctypes.CDLL:
    """Loads the library by its descriptor: the file that was checked, not what has the name by now.

    The descriptor stays open, since the loader takes equal names, this number's too, for one
    library.
    """
    try:
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    except OSError as error:
        os.close(descriptor)
        raise OSError(f"{path}: cannot be loaded ({str(error).partition(': ')[2]})") from None
