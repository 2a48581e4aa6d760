"""Logs the scalars of a run's records to TensorBoard, Weights & Biases or MLflow."""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from bigtrk.config import flat
from bigtrk.console import warn_once
from bigtrk.errors import InputError, reason
from bigtrk.records.live import scalars
from bigtrk.records.metrics import X_AXES, MetricsRecord, place_of
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import read_run_record

Logger = Callable[[MetricsRecord], None]
PATIENCE = 60.0  # s that a run waits for a logger, at its start and at its end
PROJECT, TAG = "bigtrk", "bigtrk_run"
# MLflow's limits on parameters: how many at once, how long, and the names it takes.
MOST_PARAMETERS, LONGEST_PARAMETER, NOT_IN_NAMES = 100, 500, r"[^\w./ -]"


def check_loggers(names: Sequence[str]) -> None:
    """Raises InputError if the package of one of the loggers `names` is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise InputError(f"run.loggers: {name} is not installed; pip install 'bigtrk[{name}]'")


@contextmanager
def open_logger(name: str, folder: Path) -> Iterator[Logger]:
    """Yields a function that logs a record, in a thread; InputError if the logger does not open."""

    def warn(what: str) -> None:
        warn_once(
            f"logger {name}",
            f"run.loggers: {name} {what}; the training is not affected, and metrics.jsonl has all "
            "records",
        )

    def log_all() -> None:  # in one thread: MLflow's runs are each thread's own
        try:
            with LOGGERS[name](folder) as log:
                opened.set_result(None)
                while record := records.get():
                    try:
                        log(record)
                    except Exception as error:
                        warn(f"refused a record ({reason(error)})")
        except Exception as error:
            if opened.done():
                warn(f"cannot be closed ({reason(error)})")
            else:
                opened.set_exception(error)

    opened: Future[None] = Future()
    records: SimpleQueue[MetricsRecord | None] = SimpleQueue()
    thread = threading.Thread(target=log_all, name=name, daemon=True)
    thread.start()
    try:
        opened.result(PATIENCE)
    except Exception as error:
        records.put(None)
        why = reason(error) or f"no answer for {PATIENCE:.0f} s"
        raise InputError(
            f"run.loggers: {name} cannot be opened ({why}); check its service, or leave it out"
        ) from None
    try:
        yield records.put
    finally:
        records.put(None)
        thread.join(PATIENCE)
        if thread.is_alive():
            warn(f"has not taken all records within {PATIENCE:.0f} s of the training's end")


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Logger]:
    """Yields a logger to event files in the run folder; it flushes after each record."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)

    def log(record: MetricsRecord) -> None:
        for name, value in scalars(record):
            writer.add_scalar(name, value, place_of(record))
        writer.flush()

    yield log


@contextmanager
def _wandb(folder: Path) -> Iterator[Logger]:
    """Yields a logger to project "bigtrk", or WANDB_PROJECT; a resumed run continues its own."""
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

    yield log


@contextmanager
def _mlflow(folder: Path) -> Iterator[Logger]:
    """Yields a logger to experiment "bigtrk", or MLFLOW_EXPERIMENT_NAME; a resumed run goes on."""
    import mlflow

    record = read_run_record(folder)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    experiment = mlflow.set_experiment(name).experiment_id
    identity = _identity(folder, record)
    own = mlflow.search_runs([experiment], f"tags.{TAG} = '{identity}'", output_format="list")
    mlflow.end_run()  # that of the process, where MLflow is older than its threads' own runs
    if own:
        mlflow.start_run(run_id=own[0].info.run_id)
    else:
        mlflow.start_run(run_name=folder.name, tags={TAG: identity})
        left = (
            (re.sub(NOT_IN_NAMES, "_", key), value[:LONGEST_PARAMETER])
            for key, value in flat(record.config).items()
        )
        while some := dict(islice(left, MOST_PARAMETERS)):
            mlflow.log_params(some)

    def log(record: MetricsRecord) -> None:
        mlflow.log_metrics(dict(scalars(record)), step=place_of(record))

    yield log
    mlflow.end_run()


def _identity(folder: Path, record: RunRecord) -> str:
    """Returns an id unique to the run, which stays the same when it is resumed."""
    begun = f"{folder.resolve()} {record.started}"
    return hashlib.sha256(begun.encode()).hexdigest()[:16]


LOGGERS: dict[str, Callable[[Path], AbstractContextManager[Logger]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
