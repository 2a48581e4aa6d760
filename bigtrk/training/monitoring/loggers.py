"""TensorBoard and Weights & Biases: the scalars of a run's records, beside metrics.jsonl."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bigtrk.errors import InputError
from bigtrk.records.metrics import MetricsRecord
from bigtrk.records.run_folder import read_run_record

Logger = Callable[[MetricsRecord], None]
# The key of each kind of record that its scalars are drawn against.
X_AXES = {"step": "step", "epoch": "epoch", "validation": "step"}


def check_loggers(names: Sequence[str]) -> None:
    """Checks that all these loggers' packages are there.

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
    """Returns a function that logs one record of the run in `folder`."""
    return LOGGERS[name](folder)


def scalars(record: MetricsRecord) -> Iterator[tuple[str, float]]:
    """Yields the numbers of a record by name, "epoch/validation/auc", without those not known."""
    left_out = {"kind", "routes", "ranks", *X_AXES.values()}
    yield from _numbers(record.kind, record.model_dump(mode="json", exclude=left_out))


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{name}/{key}", item)
    elif isinstance(value, int | float):
        yield name, float(value)


def _tensorboard(folder: Path) -> Logger:
    """Logs to event files in the run folder, each record written out before the next."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)

    def log(record: MetricsRecord) -> None:
        place = getattr(record, X_AXES[record.kind])
        for name, value in scalars(record):
            writer.add_scalar(name, value, place)
        writer.flush()

    return log


def _wandb(folder: Path) -> Logger:
    """Logs a run of the project "bigtrk", or of WANDB_PROJECT; a resumed run continues its own."""
    import wandb

    record = read_run_record(folder)
    begun = f"{folder.resolve()} {record.started}"
    identity = hashlib.sha256(begun.encode()).hexdigest()[:16]
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "bigtrk"),
        name=folder.name,
        id=identity,
        resume="allow",
        dir=folder,
        config=record.config,
    )
    for kind, axis in X_AXES.items():
        run.define_metric(f"{kind}/*", step_metric=axis)

    def log(record: MetricsRecord) -> None:
        axis = X_AXES[record.kind]
        run.log({axis: getattr(record, axis), **dict(scalars(record))})

    return log


LOGGERS: dict[str, Callable[[Path], Logger]] = {"tensorboard": _tensorboard, "wandb": _wandb}
