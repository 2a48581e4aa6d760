"""A run on disk: run.json, metrics.jsonl, checkpoints/, and the model at the end."""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

import bigtrk
from bigtrk.errors import InputError
from bigtrk.files import write_atomically, write_json
from bigtrk.machine import machine, software

RUN, METRICS = "run.json", "metrics.jsonl"
WEIGHTS, DESCRIPTION = "model.safetensors", "config.json"


def create_run(path: Path | None, facts: dict[str, Any]) -> Path:
    """Start a record at `path`, or at the next free number under `runs/`.

    Raises:
        InputError: `path` already holds a run.
    """
    folder = path or _next_free(Path("runs"))
    if (folder / RUN).exists():
        raise InputError(
            f"{folder}: already holds a run; continue it with --resume {folder}, "
            f"or choose another run.folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RUN, {**_environment(), **facts})
    return folder


def append_record(folder: Path, record: dict[str, Any]) -> None:
    """Add one line to metrics.jsonl."""
    with (folder / METRICS).open("a") as lines:
        lines.write(json.dumps(record, allow_nan=False) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def save_model(folder: Path, weights: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Write model.safetensors and config.json: all that `load_model` needs."""
    write_atomically(folder / WEIGHTS, lambda path: save_file(weights, path))
    write_json(folder / DESCRIPTION, description)


def _next_free(parent: Path) -> Path:
    taken = [int(path.name) for path in parent.glob("[0-9]*") if path.name.isdigit()]
    return parent / f"{max(taken, default=0) + 1:04d}"


def _environment() -> dict[str, Any]:
    return {
        "bigtrk": bigtrk.__version__,
        "git": _git_hash(),
        "software": software(),
        "machine": machine(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _git_hash() -> str | None:
    """The commit of the checkout bigtrk runs from, None for an installed package."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
