"""The commands of the `bigtrk` program that hand things over to other software: export."""

from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import say
from bigtrk.user_code import Code, allow_code

export = typer.Typer(
    help="Hand graphs, models and tracks over to other software.", no_args_is_help=True
)


@export.command("acts")
def acts(
    run: Annotated[
        Path, typer.Argument(help="run of an edge model or an embedding, or folder of a pipeline")
    ],
    out: Annotated[Path, typer.Argument(help="folder for the models and the README.md of them")],
    code: Code = None,
) -> None:
    """Write trained models as ACTS's GNN plugin loads them: ONNX and TorchScript."""
    from bigtrk.pipeline.acts import export_to_acts

    allow_code(code or ())
    written = export_to_acts(run, out)
    say(f"{out}: {', '.join(written)}")
