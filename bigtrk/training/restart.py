"""A restart of torchrun's (`--max-restarts`): it goes on with the run of the ranks before.

The store of torchrun's agent outlives the ranks, and is this torchrun's alone.
"""

from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

from bigtrk.console import say
from bigtrk.parallel.collectives import on_first_rank, together
from bigtrk.parallel.process_group import agent_store
from bigtrk.records.run_folder import RUN
from bigtrk.training.checkpoint.folder import has_any
from bigtrk.training.checkpoint.resume import resumed_configuration
from bigtrk.training.run_folder import clear_run
from bigtrk.training.settings import Configuration

_KEY = "bigtrk/run"


def note_run(folder: Path) -> None:
    """Notes which run the ranks train, if torchrun started them."""
    with suppress(dist.DistError):
        if store := agent_store():
            store.set(_KEY, str(folder))


def after_restart(configuration: Configuration) -> tuple[Configuration, Path | None]:
    """Returns the run to resume and its configuration, where this is a restart; a run that has no
    checkpoint yet is begun again in its folder. Collective.

    Raises:
        InputError: the run cannot be read, another process writes there, or the disk refuses.
    """
    folder = on_first_rank(_noted)
    if folder is None:
        return configuration, None
    if on_first_rank(lambda: _goes_on(folder)):
        return together(lambda: resumed_configuration(folder, ())), folder
    run = configuration.run.model_copy(update={"folder": folder})
    return configuration.model_copy(update={"run": run}), None


def _noted() -> Path | None:
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
