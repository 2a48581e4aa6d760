"""The command of the `bigtrk` program that measures scaling."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bigtrk.errors import InputError
from bigtrk.machine import open_cores


class Kind(StrEnum):
    """The growth of the work with the ranks."""

    WEAK = "weak"
    STRONG = "strong"


def scale(
    kind: Annotated[Kind, typer.Argument(help="weak: events per rank fixed; strong: in all")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG.yaml | key.sub=value | DATA]...",
            help="configuration as bigtrk/train.py takes it; folders of graphs or sectors",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of the series; one there is continued")] = Path(
        "scaling"
    ),
    ranks: Annotated[str, typer.Option(help="world sizes")] = "1,2,4",
    events: Annotated[
        int, typer.Option(min=1, help="to train on: per rank (weak), in all (strong)")
    ] = 100,
    validation: Annotated[int, typer.Option(min=0, help="to validate, likewise")] = 20,
    repeats: Annotated[
        int, typer.Option(min=1, max=1000, help="runs per world size, seeds differ")
    ] = 3,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="print a script that submits job arrays instead")
    ] = False,
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, help="with --slurm; 4 without it")
    ] = None,
) -> None:
    """Train over numbers of ranks on this host, and report; an unfinished series is taken up.

    `bigtrk report FOLDER...` reports series again, or several side by side.
    """
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.scaling.run_series import plan_series, run_series, slurm_script

    if ranks_per_node and not slurm:
        raise InputError("--ranks-per-node: belongs to --slurm; here all ranks share this host")
    per_node, cores = ((ranks_per_node or 4), None) if slurm else (None, open_cores())
    series = plan_series(
        kind.value,
        arguments or [],
        DEFAULT,
        ranks,
        events,
        validation,
        repeats,
        out,
        per_node,
        cores,
    )
    if slurm:
        print(slurm_script(series), end="")
    else:
        run_series(series)
