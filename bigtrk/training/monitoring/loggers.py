"""TensorBoard, Weights & Biases, MLflow: the scalars of a run's records, beside metrics.jsonl."""

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from bigtrk.config import flat
from bigtrk.errors import InputError
from bigtrk.records.live import X_AXES, place_of, scalars
from bigtrk.records.metrics import MetricsRecord
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import read_run_record

Logger = Callable[[MetricsRecord], None]
PROJECT, TAG = "bigtrk", "bigtrk_run"
# What MLflow takes of parameters: so many at once, so long, of such names.
MOST_PARAMETERS, LONGEST_PARAMETER = 100, 500
NOT_IN_NAMES = re.compile(r"[^\w./ -]")


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


def _tensorboard(folder: Path) -> Logger:
    """Logs to event files in the run folder, each record written out before the next."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)

    def log(record: MetricsRecord) -> None:
        for name, value in scalars(record):
            writer.add_scalar(name, value, place_of(record))
        writer.flush()

    return log


def _wandb(folder: Path) -> Logger:
    """Logs a run of the project "bigtrk", or of WANDB_PROJECT; a resumed run continues its own."""
    import wandb

    record = read_run_record(folder)
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=folder.name,
        id=_identity(folder, record),
        resume="allow",
        dir=folder,
        config=record.config,
    )
    for kind, axis in X_AXES.items():
        run.define_metric(f"{kind}/*", step_metric=axis)

    def log(record: MetricsRecord) -> None:
        run.log({X_AXES[record.kind]: place_of(record), **dict(scalars(record))})

    return log


def _mlflow(folder: Path) -> Logger:
    """Logs a run of the experiment "bigtrk", or of MLFLOW_EXPERIMENT_NAME, at the address of
    MLFLOW_TRACKING_URI; a resumed run continues its own.
    """
    import mlflow

    record = read_run_record(folder)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    experiment = mlflow.set_experiment(name).experiment_id
    identity = _identity(folder, record)
    own = mlflow.search_runs([experiment], f"tags.{TAG} = '{identity}'", output_format="list")
    mlflow.end_run()  # that of an earlier training in this process
    if own:
        mlflow.start_run(run_id=own[0].info.run_id)
    else:
        mlflow.start_run(run_name=folder.name, tags={TAG: identity})
        _log_parameters(mlflow.log_params, record.config)

    def log(record: MetricsRecord) -> None:
        mlflow.log_metrics(dict(scalars(record)), step=place_of(record))

    return log


def _log_parameters(log: Callable[[dict[str, str]], object], config: dict[str, Any]) -> None:
    """Logs the configuration by key, as far as MLflow takes it."""
    named = {NOT_IN_NAMES.sub("_", key): value for key, value in flat(config).items()}
    left = ((name, value[:LONGEST_PARAMETER]) for name, value in named.items())
    while some := dict(islice(left, MOST_PARAMETERS)):
        log(some)


def _identity(folder: Path, record: RunRecord) -> str:
    """Returns a name that a run keeps when it is resumed, and shares with no other."""
    begun = f"{folder.resolve()} {record.started}"
    return hashlib.sha256(begun.encode()).hexdigest()[:16]


LOGGERS: dict[str, Callable[[Path], Logger]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
