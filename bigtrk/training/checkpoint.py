"""Checkpoints: written beside, then renamed, so that `latest` always names a whole one."""

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from bigtrk.errors import InputError
from bigtrk.files import read_json, sync_folder, write_json
from bigtrk.parallel.engine import Engine
from bigtrk.training.schedule import Plateau
from bigtrk.training.spikes import LossHistory

KEEP = 2  # the newest and one to fall back on


@dataclass(frozen=True)
class Progress:
    """Where a run stands: epochs and steps completed, by which engine on how many ranks, and what
    the learning rate and the spike guard depend on.
    """

    epoch: int
    step: int
    engine: str
    world_size: int
    plateau: Plateau
    history: LossHistory

    @staticmethod
    def parse(content: dict[str, Any]) -> "Progress":
        """Of what `asdict` made."""
        plateau, history = Plateau(**content["plateau"]), content["history"]
        known = LossHistory(tuple(history["losses"]), history["spikes_since"])
        return Progress(**{**content, "plateau": plateau, "history": known})


def save_checkpoint(engine: Engine, run: Path, progress: Progress) -> None:
    """Write the engine's state and `progress` under `run`/checkpoints. Collective."""
    root = run / "checkpoints"
    final = root / f"epoch-{progress.epoch:04d}"
    temporary = root / f".{final.name}.tmp"
    first = dist.get_rank() == 0
    if first:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    dist.barrier()
    engine.save(temporary)
    dist.barrier()
    if first:
        write_json(temporary / "progress.json", asdict(progress))
        _sync_tree(temporary)
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        sync_folder(root)
        write_json(root / "latest.json", {"checkpoint": final.name})
        _prune(root, keep=final.name)
    dist.barrier()


def load_checkpoint(engine: Engine, run: Path, engine_name: str) -> Progress:
    """Load the newest checkpoint into `engine`. Collective.

    Raises:
        InputError: there is none, or another engine or world size wrote it.
    """
    progress = latest_progress(run)
    folder = run / "checkpoints" / latest_checkpoint(run)
    here = (engine_name, dist.get_world_size())
    if here != (progress.engine, progress.world_size):
        raise InputError(
            f"{folder}: written by {progress.engine} on {progress.world_size} ranks, this is "
            f"{here[0]} on {here[1]}; resume with the former"
        )
    engine.load(folder)
    return progress


def latest_progress(run: Path) -> Progress:
    """What the newest checkpoint says of its run.

    Raises:
        InputError: there is none, or it is incomplete.
    """
    path = run / "checkpoints" / latest_checkpoint(run) / "progress.json"
    try:
        return Progress.parse(read_json(path))
    except (InputError, TypeError, KeyError) as error:
        raise InputError(
            f"{path}: the newest checkpoint is damaged ({error}); name an older one that is whole "
            f"in {run / 'checkpoints' / 'latest.json'}"
        ) from None


def latest_checkpoint(run: Path) -> str:
    """Name of the newest whole checkpoint.

    Raises:
        InputError: the run has none yet.
    """
    marker = run / "checkpoints" / "latest.json"
    if not marker.exists():
        raise InputError(f"{run}: holds no checkpoint to resume from; start it anew")
    return str(read_json(marker)["checkpoint"])


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as handle:
                os.fsync(handle.fileno())


def _prune(root: Path, keep: str) -> None:
    whole = sorted(path for path in root.glob("epoch-*") if path.is_dir())
    for old in whole[:-KEEP]:
        if old.name != keep:
            shutil.rmtree(old)
