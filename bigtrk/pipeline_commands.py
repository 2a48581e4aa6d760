"""The commands of the `bigtrk` program that lead from hits to tracks: pipeline and its stages."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigtrk.console import console, print_result, say
from bigtrk.tracks.builders.names import BuilderName

if TYPE_CHECKING:
    from bigtrk.pipeline.tracks_folder import TracksMade

pipeline = typer.Typer(help="Train the stages from hits to tracks.", no_args_is_help=True)


def filter_graphs(
    run: Annotated[Path, typer.Argument(help="run of an edge model, such as model.name=mlp")],
    graphs: Annotated[Path, typer.Argument(help="folder of graphs")],
    out: Annotated[Path, typer.Argument(help="folder for the thinned graphs")],
    efficiency: Annotated[
        float | None, typer.Option(help="share of target edges to keep; 0.995")
    ] = None,
    cut: Annotated[
        float | None, typer.Option(min=0, max=1, help="score to be reached, instead")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Thin graphs to the edges that a trained edge model does not take for false."""
    from bigtrk.graphs.builders.build_folder import show_folder
    from bigtrk.pipeline.filtering import filter_folder

    manifest = filter_folder(run, graphs, out, cut, efficiency)
    print_result(manifest, as_json, lambda: show_folder(manifest, console))


@pipeline.command("train")
def train_stages(
    events: Annotated[Path, typer.Argument(help="folder or zip of events with truth")],
    out: Annotated[Path, typer.Argument(help="folder of the pipeline; one there is continued")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[PIPELINE.yaml]", help="settings of the stages")
    ] = None,
    launcher: Annotated[
        str | None, typer.Option(help="of the trainings: 'deepspeed --num_gpus 2' and the like")
    ] = None,
) -> None:
    """Train all stages from hits to tracks; what is trained already is kept."""
    from bigtrk.pipeline.train import train_pipeline

    train_pipeline(events, out, file, launcher)
    say(f"the pipeline is in {out}; 'bigtrk reconstruct {out} EVENTS OUT' makes tracks")


def reconstruct(
    folder: Annotated[Path, typer.Argument(metavar="PIPELINE", help="folder of a pipeline")],
    events: Annotated[Path, typer.Argument(help="folder or zip of events; truth is not read")],
    out: Annotated[Path, typer.Argument(help="folder for the tracks")],
    min_hits: Annotated[int, typer.Option(min=1, help="hits of a track")] = 3,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="quality that a track needs: a higher one than the pipeline's gives fewer fakes",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Make tracks of hits: a parquet file per event, and a TrackML submission of all."""
    from bigtrk.pipeline.reconstruct import reconstruct_folder

    _print_tracks(reconstruct_folder(folder, events, out, min_hits, threshold), as_json)


def infer(
    run: Annotated[Path, typer.Argument(help="run of an edge model")],
    graphs: Annotated[Path, typer.Argument(help="folder of graphs, with truth or without")],
    out: Annotated[Path, typer.Argument(help="folder for the tracks")],
    builder: Annotated[
        BuilderName, typer.Option(help="what makes tracks of the scores")
    ] = BuilderName.COMPONENTS,
    score_cut: Annotated[
        float | None, typer.Option(min=0, max=1, help="of the builder; its own without it")
    ] = None,
    min_hits: Annotated[int, typer.Option(min=1, help="hits of a track")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Make tracks of graphs: a parquet file per event, and a TrackML submission of all."""
    from bigtrk.pipeline.reconstruct import infer_folder

    _print_tracks(infer_folder(run, graphs, out, builder, score_cut, min_hits), as_json)


def _print_tracks(made: "TracksMade", as_json: bool) -> None:
    """Prints what became of the events; exit status 2 where one failed."""
    from bigtrk.pipeline.tracks_folder import show_tracks

    print_result(made.as_json(), as_json, lambda: show_tracks(made, console))
    if made.failed:
        raise typer.Exit(2)
