"""The programs as a user runs them, in this process (fast) or in their own."""

import gc
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import bigtrk
from bigtrk import cli, program
from partition import cli as partition_cli
from tests.distributed.ranks import FORKSERVER

MAINS = {
    "bigtrk": cli.main,
    "bigtrk-partition": partition_cli.main,
    "bigtrk/train.py": program.main,
}
Run = Callable[[list[str]], tuple[int, str, str]]  # a command -> exit status, stdout, stderr
CHECKOUT = Path(bigtrk.__file__).parent.parent
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_OWN_PORTS = iter(range(12000 + 500 * _WORKER, 12500 + 500 * _WORKER))


def run_here(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Run a program's main in this process: exit status, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", command)
    capsys.readouterr()
    status = 0
    try:
        MAINS[command[0]]()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def output_of(ended: tuple[int, str, str]) -> str:
    """Returns what a program printed, which must have succeeded."""
    status, out, errors = ended
    assert status == 0, errors
    return out


def refusal_of(ended: tuple[int, str, str]) -> str:
    """Returns what a program said that must have refused its input, and printed nothing."""
    status, out, errors = ended
    assert (status, out) == (2, ""), errors
    return errors


def run_in_one(commands: list[str], folder: Path) -> str:
    """Run the mains of commands in `folder`, one after another in one fork; what they print."""
    return run_forked(folder, _run_each, commands)


def run_forked(folder: Path, work: Callable[..., None], *arguments: object) -> str:
    """Run `work(*arguments)` in a fork of a process that has imported torch; what it prints."""
    with tempfile.NamedTemporaryFile("r") as printed:
        process = FORKSERVER.Process(target=_work, args=(folder, printed.name, work, arguments))
        process.start()
        process.join()
        said = printed.read()
    assert process.exitcode == 0, said[-2000:]
    return said


def _work(folder: Path, printed: str, work: Callable[..., None], arguments: Any) -> None:
    descriptor = os.open(printed, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    work(*arguments)


def _run_each(commands: list[str]) -> None:
    for line in commands:
        gc.freeze()  # what a command has imported is no garbage of the next
        sys.argv = shlex.split(line)
        try:
            MAINS[sys.argv[0]]()
        except SystemExit as end:
            if end.code:
                sys.exit(f"{line}: {end.code}")


def run_python(
    arguments: Sequence[str | Path], folder: Path = CHECKOUT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run this environment's Python in `folder`; the checkout is on its path."""
    path = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def run_shell(command: str, folder: Path, timeout: float = 600) -> str:
    """Run a shell command in `folder`, this environment's programs on the path; its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def free_port() -> int:
    """A port that no other job of this machine has, nor gets: below those that the kernel hands out
    (a rank that waited for an absent one met a store of another test there), and of this worker.
    """
    for port in _OWN_PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("all ports of this worker are used up")
