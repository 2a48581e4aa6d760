"""The commands of the `bigtrk` program that search for settings, and report on it."""

from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import console, print_result
from bigtrk.errors import InputError


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
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="a database for searchers on several hosts, such as postgresql://HOST/NAME; "
            "a file in OUT by default",
        ),
    ] = None,
) -> None:
    """Search for the settings that make a metric best, by TPE, and end bad trials early.

    Each trial is a run folder, OUT/trial0007. The same command goes on after whatever ended it, and
    may run several times at once.
    """
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.search.plan import plan_search
    from bigtrk.studies.search.search import run_search

    planned = plan_search(space, arguments or [], DEFAULT, out, storage, trials)
    run_search(planned, trials, at_once, ranks, launcher)


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
