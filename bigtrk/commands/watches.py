"""The command of the `bigtrk` program that shows runs while they train."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import console


def watch(
    runs: Annotated[
        list[Path], typer.Argument(help="run folders, also of runs that are yet to begin")
    ],
) -> None:
    """Show runs while they train: losses, rates, memory, shares of time, time to the end, stalls.

    Without a terminal: a line whenever there is something new. It ends when all runs have, and
    writes nothing into their folders.
    """
    from bigtrk.reports.watch import Watch, print_lines, show_dashboard

    with suppress(KeyboardInterrupt):
        watched = Watch(runs)
        if console.is_terminal and not console.is_dumb_terminal:
            show_dashboard(watched, console)
        else:
            print_lines(watched)
