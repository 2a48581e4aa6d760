"""Commands of the `bigtrk` program that train, check, import and export models and results."""

import json
import sys
from argparse import Namespace
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigtrk.commands.options import AsJson, TracksFrom
from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.errors import number_of
from bigtrk.formats.registry import (
    GRAPH_WRITERS,
    MODEL_READERS,
    MODEL_WRITERS,
    TRACK_WRITERS,
    Format,
    options_of,
)
from bigtrk.user_code import Code, allow_code

if TYPE_CHECKING:
    from bigtrk.proof.prove import Proof

# mypy cannot know the members of what a registry names.
ModelSource = StrEnum("ModelSource", {n.upper(): n for n in MODEL_READERS})  # type: ignore[misc]
TrackFormat = StrEnum("TrackFormat", {n.upper(): n for n in TRACK_WRITERS})  # type: ignore[misc]
export = typer.Typer(
    help="Write graphs, models or tracks for other software.", no_args_is_help=True
)


def train(context: typer.Context) -> None:
    """Train a track-finding network, on one rank or many."""
    from bigtrk.program import main as fit

    fit("bigtrk train", context.args)


def resume(
    run: Annotated[Path, typer.Argument(help="folder of the run")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[key.sub=value]...", help="settings, such as training.epochs=20"),
    ] = None,
    code: Code = None,
) -> None:
    """Continue a training from its newest good checkpoint.

    The number of ranks may change. This command starts one rank; two are started by torchrun
    --nproc-per-node 2 -m bigtrk resume RUN.
    """
    from bigtrk.parallel.ranks import discover
    from bigtrk.program import run as train

    ranks = discover()
    arguments = Namespace(arguments=settings or [], resume=run, code=code or [])
    exit_on_bad_input("bigtrk resume", lambda: train(ranks, arguments), rank=ranks.rank)


def check_model(
    spec: Annotated[str, typer.Argument(help="value of model.name: mlp, or my_module:MyModel")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[key.sub=value]...", help="settings, such as model.hidden=16"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prove that a model gives the same in sectors.

    It compares all results and gradients in float64, on random graphs cut into 2 to 4 sectors, with
    those of the whole graph. It ends with a line of JSON. Exit status: 0 exact, 1 not exact (the
    line names the first layer that differs, and why), 2 bad input.
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
    """Prints the differences for each graph and number of sectors, and the conclusion."""
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
        typer.Argument(metavar="FORMAT", help=f"format of the model: {', '.join(MODEL_READERS)}"),
    ],
    checkpoint: Annotated[Path, typer.Argument(help="file of the model")],
    out: Annotated[Path, typer.Argument(help="new folder for the run")],
) -> None:
    """Make a run of a model that other software trained.

    It can be evaluated, trained further and exported. Nothing in its file is run as code.
    """
    from bigtrk.reports.model_card import refresh_card

    model = MODEL_READERS[form](checkpoint, out).model
    refresh_card(out)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"{out}: a model of {n_parameters:,} parameters")


@export.command("tracks")
def export_tracks(
    tracks: TracksFrom,
    out: Annotated[Path, typer.Argument(help="file to write, or folder for files of events")],
    form: Annotated[
        TrackFormat,
        typer.Option(
            "--format",
            help="trackml: a submission; parquet: a row per track; acts: prototracks",
        ),
    ],
    events: Annotated[
        Path | None, typer.Option(help="with --format acts: folder or zip of the events")
    ] = None,
) -> None:
    """Write tracks for other software."""
    options = options_of(TRACK_WRITERS, form, "--format", {"events": events})
    written = TRACK_WRITERS[form](tracks, out, **options)
    if written:
        say(f"{number_of(len(written), 'file')} in {out}")


def _add_graphs(name: str, form: Format) -> None:
    run_option = typer.Option(
        help="run of an edge model: its scores of the edges are written", hidden=not form.options
    )

    @export.command(name, help=form.help)
    def write(
        graphs: Annotated[Path, typer.Argument(help="folder of graphs")],
        out: Annotated[Path, typer.Argument(help="folder for the files")],
        run: Annotated[Path | None, run_option] = None,
        code: Code = None,
    ) -> None:
        from bigtrk.parallel.ranks import discover
        from bigtrk.pipeline.models import load_scorer

        allow_code(code or ())
        options_of(GRAPH_WRITERS, name, "export", {"run": run})
        scorer = {} if run is None else {"scorer": load_scorer(run, discover().device)}
        say(f"{number_of(len(form(graphs, out, **scorer)), 'file')} in {out}")


def _add_model(name: str, form: Format) -> None:
    where = "folder for the files" if form.options else "file to write"

    @export.command(name, help=form.help)
    def write(
        run: Annotated[Path, typer.Argument(help="run of a model, or a pipeline")],
        out: Annotated[Path, typer.Argument(help=where)],
        code: Code = None,
    ) -> None:
        from bigtrk.pipeline.trained import stages_of

        allow_code(code or ())
        trained = {"trained": stages_of} if form.options else {}
        say(f"{out}: {', '.join(form(run, out, **trained))}")


for _name, _form in GRAPH_WRITERS.items():
    _add_graphs(_name, _form)
for _name, _form in MODEL_WRITERS.items():
    _add_model(_name, _form)
