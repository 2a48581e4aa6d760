"""Options that several commands of the `bigtrk` program share."""

from pathlib import Path
from typing import Annotated

import typer

from bigtrk.errors import InputError

AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]
MinHits = Annotated[int, typer.Option(min=1, help="shortest track, in hits")]
PtMin = Annotated[float, typer.Option(min=0, help="GeV; particles a track finder must find")]


def check_page(page: Path | None) -> Path | None:
    """Refuses a page that could not be written, before anything is computed for it.

    Raises:
        InputError: its folder is missing, or it is one itself.
    """
    if page and not page.parent.is_dir():
        raise InputError(f"{page}: no such folder {page.parent}; make it, or name another")
    if page and page.is_dir():
        raise InputError(f"{page}: is a folder; name a file in it, such as {page / 'report'}")
    return page
