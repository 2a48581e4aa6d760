"""The commands of the `bigtrk` program that search for settings, and report on it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import console, print_result
from bigtrk.errors import InputError


class StorageName(StrEnum):
    """The file that holds a study."""

    SQLITE = "sqlite"
    JOURNAL = "journal"


class Executor(StrEnum):
    """The program that finds a host for each trial."""

    LOCAL = "local"
    RAY = "ray"


Placing = Annotated[
    Executor,
    typer.Option(
        help="local: trials share this host; ray: they train on hosts that Ray chooses, in the "
        "cluster of this host or of RAY_ADDRESS"
    ),
]
Cpus = Annotated[
    int | None,
    typer.Option(min=1, help="with ray: cores of each trial; by default one for each rank"),
]
Gpus = Annotated[
    int | None,
    typer.Option(
        min=0, help="with ray: GPUs of each trial; by default one for each rank if there are any"
    ),
]


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
    at_once: Annotated[int, typer.Option(min=1, help="trials at a time")] = 1,
    ranks: Annotated[int, typer.Option(min=1, help="ranks of each trial, on one host")] = 1,
    launcher: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="what starts bigtrk/train.py instead of torchrun, such as "
            '"srun --ntasks 8 python"',
        ),
    ] = None,
    executor: Placing = Executor.LOCAL,
    cpus: Cpus = None,
    gpus: Gpus = None,
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
    from bigtrk.studies.search.ray_places import Share
    from bigtrk.studies.search.run_search import run_search
    from bigtrk.train import DEFAULT

    if executor is Executor.LOCAL and (cpus, gpus) != (None, None):
        raise InputError("--cpus, --gpus: are of --executor ray; trials share this host equally")
    planned = plan_search(
        space, arguments or [], DEFAULT, out, storage.value if storage else None, trials
    )
    on_ray = Share(cpus, gpus) if executor is Executor.RAY else None
    run_search(planned, trials, at_once, ranks, launcher, on_ray)


def report_search(folders: list[Path], html: Path | None, as_json: bool) -> None:
    """Reports on a search, for `bigtrk report`; html: a page to write, too."""
    from bigtrk.reports import read_search, search_report, show, summarise_search, write_page

    if len(folders) > 1:
        raise InputError(
            f"{', '.join(map(str, folders))}: a search is reported alone; name one, or runs"
        )
    search = read_search(folders[0])
    report = search_report(search)
    if html:  # before what is printed, whose reader may leave
        write_page(report, html)
    print_result(summarise_search(search), as_json, lambda: show(report, console))
