"""A small library in C, made and called by processes of their own as a training would."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.programs import CHECKOUT

CODE = "int answer(void) { return 42; }\n"
HOSTILE = "int answer(void) { return 13; }\n"
CALL = """
from pathlib import Path
from bigtrk.native_code import compiled
library = compiled("answer", Path("answer.c"))
print("plain" if library is None else library.answer())
"""

# A container's user, whom the system does not know.
NO_HOME = """
import os, pwd
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
del os.environ["HOME"]
"""


class Answer(NamedTuple):
    """Holds what the library answered ("plain": there is none), and what was said on stderr."""

    answer: str
    said: list[str]


class Place:
    """A home, a working folder with the library's source, and a folder for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work, self.temporary = (folder / x for x in ("home", "work", "temporary"))
        for one in (self.home, self.work, self.temporary):
            one.mkdir(mode=0o755)
        (self.work / "answer.c").write_text(CODE)
        self.cache = self.home / ".cache/bigtrk"

    @property
    def library(self) -> Path:
        """The library in the cache."""
        (path,) = self.cache.glob("*.so")
        return path

    def start(
        self, code: str = CALL, before: tuple[str, ...] = (), umask: int = -1, **variables: str
    ) -> subprocess.Popen[str]:
        own = ("XDG_CACHE_HOME", "CC", "LOCAL_RANK", "SLURM_LOCALID")
        inherited = {name: value for name, value in os.environ.items() if name not in own}
        here = {"HOME": str(self.home), "TMPDIR": str(self.temporary), "PYTHONPATH": str(CHECKOUT)}
        return subprocess.Popen(
            [*before, sys.executable, "-c", code],
            cwd=self.work,
            env={**inherited, **here, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            umask=umask,
        )

    def ask(
        self, code: str = CALL, before: tuple[str, ...] = (), umask: int = -1, **variables: str
    ) -> Answer:
        """Ask the library in a process that must end well, and leave nothing behind."""
        asked = finished(self.start(code, before, umask, **variables))
        assert list(self.temporary.iterdir()) == []
        return asked

    def ask_apart(self, prepare: str) -> Answer:
        """Ask in a namespace of its own, where all users but this one are unknown, after the
        commands in `prepare`, which may mount.
        """
        unshare = ("unshare", "--map-root-user", "--mount")
        if (
            not shutil.which("unshare")
            or subprocess.run([*unshare, "true"], check=False).returncode
        ):
            pytest.skip("this user may not make namespaces")
        return self.ask(before=(*unshare, "sh", "-ec", f'{prepare}\nexec "$@"', "sh"))

    def plant(self, path: Path) -> None:
        """Put a library that answers otherwise, with its digest, at `path`."""
        source = self.work / "hostile.c"
        source.write_text(HOSTILE)
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", path], check=True)
        made = path.read_bytes()
        path.write_bytes(made + hashlib.sha256(made).digest())
        path.chmod(0o644)


def finished(process: subprocess.Popen[str]) -> Answer:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, (process.returncode, err)
    return Answer(out.strip(), err.splitlines())
