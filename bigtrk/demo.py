"""The demo: the main job on simulated events, run by the commands a user would type."""

import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import bigtrk
from bigtrk.console import console, say
from bigtrk.errors import InputError

EVENTS, PARTICLES = 8, 3000
DEFAULT_PORT = 29500


def commands(out: Path) -> list[str]:
    """Returns the command lines of the demo, in order."""
    train = Path(bigtrk.__file__).parent / "train.py"
    # One types the short path in a checkout, and the full one elsewhere.
    if train.is_relative_to(Path.cwd()):
        train = train.relative_to(Path.cwd())
    overrides = [
        f"data.train=[{out}/sectors]",
        "data.validation=2",
        "model.hidden=32",
        "model.layers=3",
        "optimizer.lr=0.003",
        "target.pt_min=1",
        "target.hits_min=3",
        "training.class_balance=equal",
        "training.epochs=2",
        "engine.name=deepspeed",
        "engine.ds_config=zero1",
        f"run.folder={out}/run",
    ]
    return [
        f"bigtrk simulate {out}/events --events {EVENTS} --particles {PARTICLES}",
        f"bigtrk build {out}/events {out}/graphs",
        f"python -m partition {out}/graphs {out}/sectors --parts 2",
        f"deepspeed --quiet{_free_port()} --num_gpus 2 {train} {' '.join(overrides)}",
        f"bigtrk evaluate {out}/run {out}/graphs --tracks",
        f"bigtrk report {out}/run --html {out}/report.html",
    ]


def _free_port() -> str:
    """Returns the launcher's option for another port, where another job has its default one."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", DEFAULT_PORT)):
            return ""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f" --master_port {probe.getsockname()[1]}"


def run_demo(out: Path) -> None:
    """Runs the demo into `out`, which must not hold one already.

    Raises:
        InputError: `out` exists, or a command failed.
    """
    if out.exists():
        raise InputError(f"{out}: exists already; remove it, or name another folder")
    start = time.perf_counter()
    for command in commands(out):
        console.rule(style="dim")
        say(f"$ {command}", style="bold")
        _run(command)
    console.rule(style="dim")
    seconds = time.perf_counter() - start
    say(f"demo done in {seconds:.0f} s; the report is {out}/report.html")


def _run(command: str) -> None:
    program, *arguments = shlex.split(command)
    # It finds programs installed beside this interpreter, whether or not its folder is on the path.
    folder = Path(sys.executable).parent
    status = subprocess.run([str(folder / program), *arguments], check=False).returncode
    if status:
        raise InputError(f"'{command}' ended with status {status}")
