"""The commands of the `bigtrk` program that hand things over to other software: export."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bigtrk.commands.options import TracksFrom
from bigtrk.console import say
from bigtrk.formats.registry import GRAPH_WRITERS, MODEL_WRITERS, TRACK_WRITERS, Format, options_of
from bigtrk.user_code import Code, allow_code

export = typer.Typer(
    help="Hand graphs, models and tracks over to other software.", no_args_is_help=True
)


# mypy cannot know the members of what a registry names.
TrackFormat = StrEnum(  # type: ignore[misc]
    "TrackFormat", {name.upper(): name for name in TRACK_WRITERS}
)


@export.command("tracks")
def export_tracks(
    tracks: TracksFrom,
    out: Annotated[Path, typer.Argument(help="file to write, or folder for files of events")],
    form: Annotated[
        TrackFormat,
        typer.Option(
            "--format",
            help="TrackML's submission; a row per track with its hits; ACTS's prototracks",
        ),
    ],
    events: Annotated[
        Path | None, typer.Option(help="with --format acts: folder or zip of the events")
    ] = None,
) -> None:
    """Write tracks in the form that other software reads."""
    options = options_of(TRACK_WRITERS, form, "--format", {"events": events})
    written = TRACK_WRITERS[form](tracks, out, **options)
    if written:
        say(f"{len(written)} files are in {out}")


def _add_graphs(name: str, form: Format) -> None:
    run_option = typer.Option(
        help="run of an edge model, whose scores of the edges are written", hidden=not form.options
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
        say(f"{len(form(graphs, out, **scorer))} files are in {out}")


def _add_model(name: str, form: Format) -> None:
    @export.command(name, help=form.help)
    def write(
        run: Annotated[Path, typer.Argument(help="run of a model, or folder of a pipeline")],
        out: Annotated[Path, typer.Argument(help="file to write, or folder for several")],
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
