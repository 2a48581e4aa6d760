"""The command of the `bigtrk` program that shows runs while they train."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import console, say
from bigtrk.errors import InputError


def watch(
    runs: Annotated[
        list[Path], typer.Argument(help="run folders, also of runs that are yet to begin")
    ],
    serve: Annotated[
        bool, typer.Option("--serve", help="show them as a page on this host, until Ctrl-C")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="of the page; a free one without it"),
    ] = None,
) -> None:
    """Show runs while they train: losses, rates, memory, shares of time, time to the end, stalls.

    Without a terminal: a line whenever there is something new. It ends when all runs have, and
    writes nothing into their folders.
    """
    from bigtrk.reports.live.lines import print_lines
    from bigtrk.reports.live.server import LiveServer
    from bigtrk.reports.live.terminal import show_dashboard
    from bigtrk.reports.live.watch import Watch

    if port is not None and not serve:
        raise InputError("--port: belongs to --serve; add that, or leave it out")
    with suppress(KeyboardInterrupt):
        watched = Watch(runs)
        if serve:
            with LiveServer(watched, port or 0) as server:
                say(f"{server.address} shows them as records come; Ctrl-C ends it")
                server.serve_forever()
        elif console.is_terminal and not console.is_dumb_terminal:
            show_dashboard(watched, console)
        else:
            print_lines(watched)
