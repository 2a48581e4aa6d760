"""The command of the `bigtrk` program that searches for settings."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class StorageName(StrEnum):
    """The file that holds a study."""

    SQLITE = "sqlite"
    JOURNAL = "journal"


def search(
    space: Annotated[
        Path, typer.Argument(metavar="SPACE.yaml", help="the metric, and the settings to search")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG.yaml | key.sub=value | DATA]...",
            help="what all trials have in common, as bigtrk/train.py takes it; folders of graphs "
            "or sectors",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="parameter sets in all; more continue a search")
    ] = 20,
    out: Annotated[Path, typer.Option(help="folder of the search; one there is continued")] = Path(
        "search"
    ),
    at_once: Annotated[int, typer.Option(min=1, help="trials that share this host at a time")] = 1,
    ranks: Annotated[int, typer.Option(min=1, help="ranks of each trial, on this host")] = 1,
    launcher: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="what starts bigtrk/train.py instead of torchrun, such as "
            '"srun --ntasks 8 python"',
        ),
    ] = None,
    storage: Annotated[
        StorageName | None,
        typer.Option(
            help="sqlite: on a local disk of one host, the default; journal: for several hosts"
        ),
    ] = None,
) -> None:
    """Search for the settings that make a metric best, by TPE, and end bad trials early.

    Each trial is a run folder, OUT/trial0007. The same command goes on after whatever ended it, and
    may run several times at once.
    """
    from bigtrk.studies.search.plan import plan_search
    from bigtrk.studies.search.run_search import run_search
    from bigtrk.train import DEFAULT

    planned = plan_search(
        space, arguments or [], DEFAULT, out, storage.value if storage else None, trials
    )
    run_search(planned, trials, at_once, ranks, launcher)
