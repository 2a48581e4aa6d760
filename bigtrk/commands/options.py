"""Options that several commands of the `bigtrk` program share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bigtrk.console import given_path
from bigtrk.disk.files import check_output_name
from bigtrk.errors import InputError
from bigtrk.pipeline.options import Precision
from bigtrk.tracks.names import BuilderName


def check_page(page: Path | None) -> Path | None:
    """Refuses a page that could not be written, before anything is computed for it."""
    if page is None:
        return None
    page = given_path(page)
    if not page.parent.is_dir():
        raise InputError(f"{page}: no such folder {page.parent}; make it, or name another")
    return check_output_name(page, ".html")


def _spill_folder(folder: Path | None) -> Any:
    """Returns the SpillFolder that --spill names."""
    from bigtrk.training.spill import SpillFolder

    return folder and SpillFolder(given_path(folder))


Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG.yaml | key.sub=value | DATA]...",
        help="configuration as bigtrk/train.py takes it; folders of graphs or sectors",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]
Builder = Annotated[
    BuilderName | None, typer.Option(help="what makes tracks of scored edges; components")
]
MaxEdges = Annotated[
    int | None,
    typer.Option(min=1, help="edges of a graph that one rank holds; larger ones are cut for all"),
]
MinHits = Annotated[int, typer.Option(min=1, max=10**6, help="shortest track, in hits")]
Page = Annotated[
    Path | None, typer.Option(help="also write one HTML page, with plots", callback=check_page)
]
Precise = Annotated[
    Precision | None, typer.Option(help="of the classifier; that of its training without it")
]
PtMin = Annotated[float, typer.Option(min=0, help="GeV; particles a track finder must find")]
ScoreCut = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="edges above it make tracks; the builder's own without"),
]
_spill = "folder of a local disk for edges that memory has no room for"
Spill = Annotated[
    Any, typer.Option(parser=Path, callback=_spill_folder, metavar="PATH", help=_spill)
]
TracksFrom = Annotated[
    Path,
    typer.Argument(help="folder of event<id>-tracks.parquet, one such file, or a submission"),
]
