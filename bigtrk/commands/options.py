"""Options that several commands of the `bigtrk` program share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigtrk.console import given_path
from bigtrk.disk.files import check_output_name
from bigtrk.errors import InputError

if TYPE_CHECKING:
    from bigtrk.training.steps.spill import SpillFolder

AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]
MinHits = Annotated[int, typer.Option(min=1, help="shortest track, in hits")]
PtMin = Annotated[float, typer.Option(min=0, help="GeV; particles a track finder must find")]
Spill = Annotated[
    Path | None, typer.Option(help="folder of a local disk for edges that memory has no room for")
]


def check_page(page: Path | None) -> Path | None:
    """Refuses a page that could not be written, or would replace a file of another kind, before
    anything is computed for it.

    Raises:
        InputError: its folder is missing, it is one itself, or its name does not end with .html.
    """
    if page is None:
        return None
    page = given_path(page)
    if not page.parent.is_dir():
        raise InputError(f"{page}: no such folder {page.parent}; make it, or name another")
    return check_output_name(page, ".html")


def spill_folder(folder: Path | None) -> "SpillFolder | None":
    """Returns the folder that --spill names."""
    if folder is None:
        return None
    from bigtrk.training.steps.spill import SpillFolder

    return SpillFolder(folder)
