"""The commands of the `bigtrk` program that hand things over to other software: export."""

from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import say
from bigtrk.user_code import Code, allow_code

export = typer.Typer(
    help="Hand graphs, models and tracks over to other software.", no_args_is_help=True
)


@export.command("acorn")
def export_acorn(
    graphs: Annotated[Path, typer.Argument(help="folder of graphs")],
    out: Annotated[Path, typer.Argument(help="new folder for acorn's .pyg files")],
    run: Annotated[
        Path | None, typer.Option(help="run of an edge model: also write its scores of the edges")
    ] = None,
    code: Code = None,
) -> None:
    """Hand graphs over to acorn: to its trainings or, with scores, to its track building.

    Graphs that came from acorn go back with its own columns, edges and their order.
    """
    from bigtrk.formats.acorn.export_graphs import export_acorn_folder
    from bigtrk.pipeline.scoring import load_scorer

    allow_code(code or ())
    scorer = None if run is None else load_scorer(run)
    written = export_acorn_folder(graphs, out, scorer)
    say(f"{len(written)} graphs in {out}")
