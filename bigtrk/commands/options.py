"""Options shared by several commands of the `bigtrk` program."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bigtrk.console import given_path
from bigtrk.disk.files import check_output_name
from bigtrk.errors import InputError
from bigtrk.pipeline.options import Precision
from bigtrk.tracks.names import BuilderName


def check_page(page: Path | None) -> Path | None:
    """Returns `page`; InputError if it cannot be written, before anything is computed for it."""
    if page is None:
        return None
    page = given_path(page)
    if not page.parent.is_dir():
        raise InputError(f"{page}: no such folder {page.parent}; make it, or name another")
    return check_output_name(page, ".html")


def _spill_folder(folder: Path | None) -> Any:
    """Returns the SpillFolder for the folder of --spill; None without one."""
    from bigtrk.training.spill import SpillFolder

    return folder and SpillFolder(given_path(folder))


Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG.yaml | key.sub=value | DATA]...",
        help="settings, as bigtrk train takes them, and folders of graphs or sectors",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print only JSON")]
Builder = Annotated[
    BuilderName | None, typer.Option(help="how scored edges become tracks; default: components")
]
MaxEdges = Annotated[
    int | None,
    typer.Option(min=1, help="most edges that a rank holds; larger graphs are cut over the ranks"),
]
HitsMin = Annotated[int, typer.Option("--hits-min", min=1, max=10**6, help="least hits of a track")]
Page = Annotated[
    Path | None, typer.Option(help="also write an HTML page with plots", callback=check_page)
]
Precise = Annotated[
    Precision | None, typer.Option(help="precision of the classifier; default: as it was trained")
]
PtMin = Annotated[float, typer.Option(min=0, help="least pT of particles to be found, GeV")]
ScoreCut = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="use only edges of a higher score; default: the builder's"),
]
_spill = "folder on a local disk for edges that do not fit the memory"
Spill = Annotated[
    Any, typer.Option(parser=Path, callback=_spill_folder, metavar="PATH", help=_spill)
]
TracksFrom = Annotated[
    Path,
    typer.Argument(help="folder of files event...-tracks.parquet, one file, or a submission"),
]
