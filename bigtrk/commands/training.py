"""The commands of the `bigtrk` program that train models, check and import them."""

import json
import sys
from argparse import Namespace
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.formats.registry import MODEL_READERS
from bigtrk.user_code import Code

if TYPE_CHECKING:
    from bigtrk.proof.prove import Proof

# mypy cannot know the members of what a registry names.
ModelSource = StrEnum(  # type: ignore[misc]
    "ModelSource", {name.upper(): name for name in MODEL_READERS}
)


def train(context: typer.Context) -> None:
    """Train a track-finding graph network: the same under torchrun, srun and alone."""
    from bigtrk.program import main as fit

    fit("bigtrk train", context.args)


def resume(
    run: Annotated[Path, typer.Argument(help="run folder of bigtrk/train.py")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[key.sub=value]...", help="such as training.epochs, engine.name"),
    ] = None,
    code: Code = None,
) -> None:
    """Continue a training from its newest good checkpoint, as `bigtrk/train.py --resume` does.

    Any number of ranks may continue what others began; this is one rank. On two: torchrun
    --nproc-per-node 2 -m bigtrk resume RUN.
    """
    from bigtrk.parallel.ranks import discover
    from bigtrk.program import run as train

    ranks = discover()
    arguments = Namespace(arguments=settings or [], resume=run, code=code or [])
    exit_on_bad_input("bigtrk resume", lambda: train(ranks, arguments), rank=ranks.rank)


def check_model(
    spec: Annotated[
        str,
        typer.Argument(help="what follows `model.name=`: interaction, or my_module:MyModel"),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[key.sub=value]...", help="such as model.options.hidden=16"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the line of JSON alone, without a table")
    ] = False,
) -> None:
    """Prove that a model gives in sectors what it gives in the whole graph: all results and
    gradients in float64, on random graphs cut into 2 to 4 sectors.

    Ends with a line of JSON. Exit status: 0 exact, 1 not (the line names the first layer whose
    rows differ, and why), 2 bad input.
    """
    from bigtrk.proof.prove import prove_configured
    from bigtrk.shipped import DEFAULT
    from bigtrk.training.settings import users_configuration

    configuration = users_configuration(DEFAULT, [f"model.name={spec}", *(settings or [])])
    with redirect_stdout(sys.stderr):  # what the model itself prints is no part of the result
        proof = prove_configured(configuration.model, *configuration.data.feature_counts)
    if not as_json:
        _show(proof)
    print(json.dumps(proof.summary()))
    raise typer.Exit(0 if proof.exact else 1)


def _show(proof: "Proof") -> None:
    """Prints each graph and number of sectors with its differences, and what follows from them."""
    from bigtrk.proof.prove import TOLERANCE
    from bigtrk.reports.document import Table
    from bigtrk.reports.terminal import at_width, show_table

    tight, loose = min(TOLERANCE.values()), max(TOLERANCE.values())
    note = (
        "Largest differences between the whole graph and its sectors, relative to the largest "
        f"value; exact: at most {loose:.0e} where the model computes in float32 whatever it is "
        f"given, else {tight:.0e}."
    )
    rows = tuple(
        (trial.graph, str(trial.sectors), f"{trial.rows:.1e}", f"{trial.gradients:.1e}")
        for trial in proof.trials
    )
    verdict = f"not exact: {proof.first_difference}"
    if proof.exact:
        widths = ", ".join(map(str, proof.exchanges or ())) or "none"
        worst = f"differs by {proof.worst:.1e} at most"
        verdict = f"exact: {worst}; widths of its exchanges: {widths}"
    out = at_width(console)
    columns = ("graph", "sectors", "results", "gradients")
    show_table(Table(f"Proof of {proof.model}", columns, rows, (note,)), out)
    out.print(verdict, highlight=False)


def import_model(
    form: Annotated[
        ModelSource,
        typer.Argument(metavar="FORMAT", help=f"its origin: {', '.join(MODEL_READERS)}"),
    ],
    checkpoint: Annotated[Path, typer.Argument(help="file of the model")],
    out: Annotated[Path, typer.Argument(help="new folder for the run")],
) -> None:
    """Make a run of a model that other software trained: to evaluate, train on and export.

    Nothing in its file is run as code.
    """
    from bigtrk.reports.model_card import refresh_card

    model = MODEL_READERS[form](checkpoint, out).model
    refresh_card(out)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"{out}: a model of {n_parameters:,} parameters")
