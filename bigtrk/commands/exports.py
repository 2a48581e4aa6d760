"""The commands of the `bigtrk` program that hand things over to other software: export."""

from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import say

export = typer.Typer(
    help="Hand graphs, models and tracks over to other software.", no_args_is_help=True
)


@export.command("acorn-model")
def acorn_model(
    run: Annotated[Path, typer.Argument(help="run folder of an Interaction GNN")],
    out: Annotated[Path, typer.Argument(help="the .ckpt to write; must not be there yet")],
) -> None:
    """Write the model that a run ended with as a checkpoint of acorn's InteractionGNN2.

    It must read the 12 node features that acorn's models read.
    """
    from bigtrk.formats.acorn.export_model import export_model

    export_model(run, out)
    say(f"{out}: a checkpoint for acorn")
