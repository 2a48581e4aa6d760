"""TensorBoard and Weights & Biases: the scalars of a run's records, beside metrics.jsonl."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.training.run_folder import RUN

Record = dict[str, Any]
Logger = Callable[[Record], None]
X_AXES = ("step", "epoch")


def check_loggers(names: Sequence[str]) -> None:
    """All these loggers' packages are there.

    Raises:
        InputError: one is not installed.
    """
    for name in names:
        if find_spec(name) is None:
            raise InputError(
                f"run.loggers: {name} is not installed; pip install 'bigtrk[{name}]', or leave "
                f"it out"
            )


def open_logger(name: str, folder: Path) -> Logger:
    """A function that logs one record of the run in `folder`."""
    return _tensorboard(folder) if name == "tensorboard" else _wandb(folder)


def scalars(record: Record) -> Iterator[tuple[str, float]]:
    """The numbers of a record by name, "epoch/validation/auc"; what is not known is left out."""
    kind = record["kind"]
    for key, value in record.items():
        if key not in ("kind", "routes", *X_AXES):
            yield from _numbers(f"{kind}/{key}", value)


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{name}/{key}", item)
    elif isinstance(value, int | float):
        yield name, float(value)


def _tensorboard(folder: Path) -> Logger:
    """Event files in the run folder, each record written out before the next."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)

    def log(record: Record) -> None:
        for name, value in scalars(record):
            writer.add_scalar(name, value, record[record["kind"]])
        writer.flush()

    return log


def _wandb(folder: Path) -> Logger:
    """A run of the project "bigtrk", or of WANDB_PROJECT; a resumed run continues its own."""
    import wandb

    started = read_json(folder / RUN)
    begun = f"{folder.resolve()} {started.get('started')}"
    identity = hashlib.sha256(begun.encode()).hexdigest()[:16]
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "bigtrk"),
        name=folder.name,
        id=identity,
        resume="allow",
        dir=folder,
        config=started["config"],
    )
    for axis in X_AXES:
        run.define_metric(f"{axis}/*", step_metric=axis)

    def log(record: Record) -> None:
        axis = record["kind"]
        run.log({axis: record[axis], **dict(scalars(record))})

    return log
