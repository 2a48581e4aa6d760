"""The files of a run: run.json, metrics.jsonl, checkpoints/, finally the model; and its lock."""

import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

import bigtrk
from bigtrk.disk.files import disk_errors, unlinked, write_json
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError, shell_word
from bigtrk.graphs.storage.event_folder import write_tensors
from bigtrk.machine import machine, software
from bigtrk.records.run import End, MachineRecord, RunRecord
from bigtrk.records.run_folder import METRICS, RUN, read_run_record, write_run_record

CHECKPOINTS, WANDB, FLIGHT = "checkpoints", "wandb", "flight"
WEIGHTS, DESCRIPTION = "model.safetensors", "config.json"
AVERAGED = "averaged.safetensors"


def run_of(path: Path) -> Path:
    """Returns the folder of a run, given that folder or a file of weights in it."""
    return path.parent if path.suffix == Path(WEIGHTS).suffix else path


def weights_of(path: Path) -> Path:
    """Returns the file of weights at `path`: that file, or the final weights of that run."""
    return path / WEIGHTS if run_of(path) == path else path


def checkpoint_name(step: int) -> str:
    """Returns the name of the checkpoint's folder after `step` steps."""
    return f"step-{step:08d}"


def hold(lock: FolderLock, folder: Path) -> None:
    """Locks a run's folder; InputError for another writer, a link or an error of the disk."""
    for name in (METRICS, CHECKPOINTS, WANDB, FLIGHT):
        unlinked(folder / name)
    lock.take(folder)


def create_run(lock: FolderLock, path: Path | None, record: RunRecord) -> Path:
    """Starts a run at `path`, or the next number in `runs/`, and locks it; InputError if taken."""
    with disk_errors():
        folder = path or _make_next(Path("runs"))
        folder.mkdir(parents=True, exist_ok=True)
        hold(lock, folder)
        if any((folder / name).exists() for name in (RUN, METRICS, CHECKPOINTS)):
            way = "it has no checkpoint to continue from, so remove the folder, or "
            if any((folder / CHECKPOINTS).glob("step-*")):
                way = f"continue it with 'bigtrk resume {shell_word(folder)}', or "
            elif (folder / WEIGHTS).exists():
                way = ""  # such as an imported model
            raise InputError(f"{folder}: already holds a run; {way}choose another run.folder")
        here = {
            "bigtrk": bigtrk.__version__,
            "git": _git_hash(),
            "software": software(),
            "machine": MachineRecord(**machine()),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_run_record(folder, record.model_copy(update=here))
    return folder


def remove_run(folder: Path) -> None:
    """Removes a run's folder; InputError if a process is writing there, or it is a link."""
    with FolderLock() as lock, disk_errors():
        hold(lock, unlinked(folder))
        shutil.rmtree(folder)


def clear_run(folder: Path) -> None:
    """Removes the records of a run without a checkpoint; raises InputError as `hold`."""
    with FolderLock() as lock, disk_errors():
        hold(lock, folder)
        for name in (RUN, METRICS):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def save_model(
    folder: Path,
    weights: dict[str, Tensor],
    description: dict[str, Any],
    others: Mapping[str, dict[str, Tensor] | None] | None = None,
) -> None:
    """Writes model.safetensors and config.json for `load_model`, and `others` by file name."""
    with disk_errors():
        for name, found in {WEIGHTS: weights, **(others or {})}.items():
            if found is not None:
                write_tensors(folder / name, found)
        write_json(folder / DESCRIPTION, description)


def record_end(folder: Path, end: End | None) -> None:
    """Records why a training ended, None if it goes on; InputError if the disk refuses."""
    with disk_errors():
        now = datetime.now(UTC).replace(microsecond=0) if end else None
        known = {"ended": end, "finished": now}
        write_run_record(folder, read_run_record(folder).model_copy(update=known))


def _make_next(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        taken = [int(path.name) for path in parent.glob("[0-9]*") if path.name.isdecimal()]
        folder = parent / f"{max(taken, default=0) + 1:04d}"
        with suppress(FileExistsError):  # another run was first
            folder.mkdir()
            return folder


def _git_hash() -> str | None:
    """Returns the commit of the checkout that bigtrk runs from; None for an installed package."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
