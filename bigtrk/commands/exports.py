"""The commands of the `bigtrk` program that hand things over to other software: export."""

import typer

export = typer.Typer(
    help="Hand graphs, models and tracks over to other software.", no_args_is_help=True
)
