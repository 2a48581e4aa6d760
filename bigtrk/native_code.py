"""Code in C, compiled once per machine and kept in the user's cache."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bigtrk.files import atomic_path

FLAGS = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]


def compiled(
    name: str, source: Path, headers: Sequence[Path] = (), flags: Sequence[str] = ()
) -> ctypes.CDLL | None:
    """The library `name` made of `source`; None without a C compiler, or where it fails.

    torch's own OpenMP runtime is already in the process, and the library uses it.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    flags = [*FLAGS, *flags]
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    path = home / "bigtrk" / f"{name}-{_key(compiler, [source, *headers], flags)}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            command = [compiler, *flags, str(source), "-o", str(temporary), "-lm"]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                temporary.touch()  # not tried again
    return ctypes.CDLL(str(path)) if path.stat().st_size else None


def _key(compiler: str, sources: Sequence[Path], flags: Sequence[str]) -> str:
    """What decides the result: the sources, the flags, the compiler and the machine."""
    texts = [source.read_text() for source in sources]
    facts = [*texts, *flags, compiler, platform.machine(), _cpu_flags()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _cpu_flags() -> str:
    """The instruction sets of this CPU: a home folder is shared by unlike hosts."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
