"""A job: what all ranks agree to train, before anything is built."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch.distributed as dist

from bigtrk.config import by_key
from bigtrk.console import say, warn_once
from bigtrk.machine import software
from bigtrk.parallel.collectives import check_agreement, on_first_rank, together
from bigtrk.parallel.process_group import agent_store
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import RUN
from bigtrk.tracing import traced
from bigtrk.training.automatic import settle
from bigtrk.training.checkpoint.folder import has_any
from bigtrk.training.checkpoint.resume import resumed_configuration
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.data.features import with_degrees
from bigtrk.training.monitoring.loggers import check_loggers
from bigtrk.training.named_code import code_records
from bigtrk.training.run_folder import clear_run
from bigtrk.training.settings import Configuration


@dataclass(frozen=True)
class Job:
    """A training: its settings, its ranks, its events, and the folder of the run to resume."""

    configuration: Configuration
    ranks: Ranks
    events: Events
    resume: Path | None = None


def prepare(configuration: Configuration, ranks: Ranks, resume: Path | None = None) -> Job:
    """Opens the data and chooses what the configuration leaves open. Collective.

    Raises:
        InputError: ranks have other software, settings, code or data, or the data lacks what the
            training asks for; or as of `completed`.
    """
    versions = {name: str(version) for name, version in software().items()}
    check_agreement({**versions, **by_key(configuration)})
    code = together(code_records, configuration)
    check_agreement({f"version of {name}": str(one.version) for name, one in code.items()})
    with traced("opening data"):
        configuration, events = together(open_data, configuration)
    check_agreement({"data": events.fingerprint})
    return completed(Job(configuration, ranks, events, resume))


def completed(job: Job) -> Job:
    """Chooses what the settings of a job leave open. Collective.

    Raises:
        InputError: a logger's package is not installed, or no settings fit the memory.
    """
    configuration, events = job.configuration, job.events
    together(check_loggers, configuration.run.loggers)
    configuration = with_degrees(configuration, events.train)  # collective
    if configuration.training.auto and not job.resume:  # a resumed run's record has its choice
        with traced("choosing settings"):
            configuration = settle(configuration, job.ranks, events.train)  # collective
    return replace(job, configuration=configuration)


def open_data(configuration: Configuration) -> tuple[Configuration, Events]:
    """Opens the data, and checks that it has what the training asks for. Where data.edge_features
    is not set and no event has features of edges, the configuration returned reads none.

    Raises:
        InputError: a folder is missing or damaged, or an event lacks something.
    """
    data = configuration.data
    events = Events(*split_validation(data.train, data.validation, data.events))
    sources = [*events.train, *events.validation]
    has_features = any(source.edge_features for source in sources)
    if not has_features and "edge_features" not in data.model_fields_set:
        warn_once(
            "edge features",
            f"{sources[0].folder.path}: edges have no features, and nodes lack the r, phi and z to "
            f"compute some; training without (data.edge_features=[])",
        )
        data = data.model_copy(update={"edge_features": []})
        configuration = configuration.model_copy(update={"data": data})
    for source in sources:
        source.check(
            data.node_features, data.edge_features, with_pt=configuration.training.pt_weight > 0
        )
        if configuration.model.kind == "hit":
            source.check_true_edges()
    return configuration, events


# The key of the run in the store of torchrun's agent, which outlives the ranks that it restarts
# (`--max-restarts`) and is this torchrun's alone.
_KEY = "bigtrk/run"


def note_run(folder: Path) -> None:
    """Notes which run the ranks train, if torchrun started them."""
    with suppress(dist.DistError):
        if store := agent_store():
            store.set(_KEY, str(folder))


def after_restart(configuration: Configuration) -> tuple[Configuration, Path | None]:
    """Returns the run to resume and its configuration, where torchrun has restarted the ranks; a
    run that has no checkpoint yet is begun again in its folder. Collective.

    Raises:
        InputError: the run cannot be read, another process writes there, or the disk refuses.
    """
    folder = on_first_rank(_noted_run)
    if folder is None:
        return configuration, None
    if on_first_rank(_goes_on, folder):
        return together(resumed_configuration, folder, ()), folder
    run = configuration.run.model_copy(update={"folder": folder})
    return configuration.model_copy(update={"run": run}), None


def _noted_run() -> Path | None:
    with suppress(dist.DistError):
        store = agent_store()
        if store and store.check([_KEY]):
            folder = Path(store.get(_KEY).decode())
            return folder if (folder / RUN).exists() else None
    return None


def _goes_on(folder: Path) -> bool:
    """Whether the run has checkpoints; one without any is cleared."""
    goes_on = has_any(folder)
    if not goes_on:
        clear_run(folder)
    what = "goes on" if goes_on else "has no checkpoint yet, and begins again"
    say(f"{folder}: torchrun has restarted its ranks; the run {what}")
    return goes_on
