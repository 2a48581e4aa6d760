"""The commands of the `bigtrk` program that hand things over to other software: export."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bigtrk.console import say
from bigtrk.errors import InputError
from bigtrk.user_code import Code, allow_code

export = typer.Typer(
    help="Hand graphs, models and tracks over to other software.", no_args_is_help=True
)


class TrackFormat(StrEnum):
    """The form of exported tracks."""

    TRACKML = "trackml"
    PARQUET = "parquet"
    ACTS = "acts"


@export.command("tracks")
def export_tracks(
    tracks: Annotated[
        Path,
        typer.Argument(
            help="folder of event<id>-tracks.parquet, one such file, or a submission: parquet, or "
            "TrackML's CSV"
        ),
    ],
    out: Annotated[Path, typer.Argument(help="file to write; of acts, the folder for its files")],
    form: Annotated[
        TrackFormat,
        typer.Option(
            "--format",
            help="a TrackML submission; a row per track with the list of its hits; ACTS's "
            "prototracks",
        ),
    ],
    events: Annotated[
        Path | None, typer.Option(help="with --format acts: folder or zip of the events")
    ] = None,
) -> None:
    """Write tracks in the form that other software reads."""
    from bigtrk.formats.track_files import write_prototracks, write_track_lists
    from bigtrk.tracks.files import copy_as_trackml

    if (form is TrackFormat.ACTS) != (events is not None):
        raise InputError("--format acts needs --events, which say where hits are; others do not")
    if events is not None:
        say(f"{len(write_prototracks(tracks, events, out))} files are in {out}")
        return
    write = copy_as_trackml if form is TrackFormat.TRACKML else write_track_lists
    write(tracks, out)


@export.command("acts-graphs")
def export_acts_graphs(
    run: Annotated[Path, typer.Argument(help="run of an edge model")],
    graphs: Annotated[Path, typer.Argument(help="folder of graphs, with truth or without")],
    out: Annotated[Path, typer.Argument(help="folder for event<id>-gnn-graph.csv")],
    code: Code = None,
) -> None:
    """Score graphs and write them as ACTS's CsvGnnGraphReader reads them."""
    from bigtrk.formats.track_files import write_gnn_graphs
    from bigtrk.parallel.ranks import discover
    from bigtrk.pipeline.models import load_scorer

    allow_code(code or ())
    scorer = load_scorer(run, discover().device)
    say(f"{len(write_gnn_graphs(graphs, out, scorer))} files are in {out}")


@export.command("heptrkx")
def export_heptrkx(
    graphs: Annotated[Path, typer.Argument(help="folder of graphs with truth")],
    out: Annotated[Path, typer.Argument(help="folder for the npz files")],
) -> None:
    """Write graphs in the HEPTrkX npz layout, which `bigtrk build --from heptrkx` reads again."""
    from bigtrk.formats.heptrkx import export_heptrkx_folder

    say(f"{len(export_heptrkx_folder(graphs, out))} files are in {out}")


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
    from bigtrk.pipeline.models import load_scorer

    allow_code(code or ())
    scorer = None if run is None else load_scorer(run)
    written = export_acorn_folder(graphs, out, scorer)
    say(f"{len(written)} graphs in {out}")


@export.command("acorn-model")
def acorn_model(
    run: Annotated[Path, typer.Argument(help="run folder of an Interaction GNN")],
    out: Annotated[Path, typer.Argument(help="the .ckpt to write; must not be there yet")],
) -> None:
    """Write the model that a run ended with as a checkpoint of acorn's InteractionGNN2.

    It must read the 12 node features that acorn's models read.
    """
    from bigtrk.formats.acorn.model_files import export_model

    export_model(run, out)
    say(f"{out}: a checkpoint for acorn")


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
