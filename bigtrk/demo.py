"""The demo, on simulated events: the main job, then the pipeline from hits without truth to tracks,
each by the commands that a user would type.
"""

import multiprocessing
import runpy
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

from bigtrk.console import console, say
from bigtrk.errors import InputError, shell_word
from bigtrk.native_code import warn_without_compiler
from bigtrk.reports.model_card import CARD
from bigtrk.shipped import shipped

EVENTS, UNKNOWN = 8, 2  # UNKNOWN: events that nothing is trained or chosen on
DEFAULT_PORT = 29500
# The cut that finds tracks with few fakes on validation events of several seeds.
_BUILDER = "--builder fast_walk --score-cut 0.9"
_UNSEEN = f"event{EVENTS - 1:09d}"  # the last, on which the classifier is validated


def commands(folder: Path, particles: int, seed: int) -> list[str]:
    """Returns the command lines: first from events to an evaluation, then from hits to tracks."""
    out = shell_word(folder)
    train = (
        f"{shell_word(shipped('train.py'))} data.train={out}/sectors data.validation=2 "
        "model.hidden=32 model.layers=3 optimizer.lr=0.005 optimizer.schedule=cosine "
        "target.pt_min=1 target.hits_min=3 training.class_balance=equal training.epochs=12 "
        f"training.seed={seed} engine.name=deepspeed engine.ds_config=zero1 run.folder={out}/run"
    )
    unknown = f"--events {UNKNOWN} --first-event {EVENTS} --particles {particles} --seed {seed}"
    settings = shell_word(shipped("configs/pipeline_quick.yaml"))
    return [
        f"bigtrk simulate {out}/events --events {EVENTS} --particles {particles} --seed {seed}",
        f"bigtrk build {out}/events {out}/graphs",
        f"python -m partition {out}/graphs {out}/sectors --parts 2",
        f"deepspeed --quiet{_free_port()} --num_gpus 2 {train}",
        f"bigtrk evaluate {out}/run {out}/graphs --tracks {_BUILDER} --scan-cuts",
        f"bigtrk report {out}/run --html {out}/report.html",
        f"bigtrk display {out}/run {out}/graphs {out}/event.html {_BUILDER} --event {_UNSEEN}",
        f"bigtrk pipeline train {out}/events {out}/pipeline {settings}",
        f"bigtrk simulate {out}/hits {unknown} --no-truth",
        f"bigtrk reconstruct {out}/pipeline {out}/hits {out}/tracks",
        f"bigtrk simulate {out}/truth {unknown}",
        f"bigtrk score {out}/tracks {out}/truth",
    ]


def _run(words: list[str]) -> int | None:
    """Runs a command and returns its status; forks a process with torch, except for launchers."""
    if words[0] == "deepspeed":
        launcher = Path(sys.executable).with_name(words[0])  # whether or not it is on the path
        return subprocess.run([launcher, *words[1:]], check=False).returncode
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["bigtrk.api", "bigtrk.reports"])
    process = forks.Process(target=_main, args=(words[2:] if words[0] == "python" else words,))
    process.start()
    try:
        process.join()
    except SystemExit:  # of SIGTERM
        process.terminate()
        raise
    return process.exitcode


def _main(words: list[str]) -> None:
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__")


def _free_port() -> str:
    """Returns the launcher's option for a free port if another job uses the default one."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", DEFAULT_PORT)):
            return ""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f" --master_port {probe.getsockname()[1]}"


def run_demo(out: Path, particles: int, seed: int) -> None:
    """Runs `commands` in the new folder `out`; InputError if `out` exists already."""
    if out.exists():
        raise InputError(f"{out}: exists already; name another folder, or remove this one")
    warn_without_compiler()
    start = time.perf_counter()
    for command in commands(out, particles, seed):
        console.rule(style="dim")
        say(f"$ {command}", style="bold")
        if status := _run(shlex.split(command)):
            raise InputError(f"'{command}' failed (exit status {status}); see its error above")
    console.rule(style="dim")
    seconds = time.perf_counter() - start
    say(f"demo done in {seconds:.0f} s; {out}/pipeline made the tracks in {out}/tracks")
    say(f"to open in a browser: the report {out}/report.html, and an event {out}/event.html")
    say(f"to read: the model's card {out}/run/{CARD}; next, your own events: docs/tutorial.md")
