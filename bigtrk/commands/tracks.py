"""Commands of the `bigtrk` program from hits to tracks: pipelines and their stages."""

from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigtrk.commands.options import (
    AsJson,
    Builder,
    HitsMin,
    MaxEdges,
    Precise,
    ScoreCut,
    Spill,
    TracksFrom,
)
from bigtrk.console import complain, console, exit_on_bad_input, print_result, say
from bigtrk.errors import InputError, number_of, shell_word
from bigtrk.pipeline.options import MakingOptions
from bigtrk.tracks.names import BuilderName
from bigtrk.user_code import Code, allow_code

if TYPE_CHECKING:
    from bigtrk.formats.acts.fit import FitCounts
    from bigtrk.parallel.ranks import Ranks
    from bigtrk.pipeline.reconstruct import TracksMade

pipeline = typer.Typer(help="Train all stages from hits to tracks.", no_args_is_help=True)


@pipeline.command("train", epilog="Example: `bigtrk pipeline train events pipeline`")
def train_stages(
    events: Annotated[Path, typer.Argument(help="folder or zip of events with truth")],
    out: Annotated[Path, typer.Argument(help="folder of the pipeline; continued if it is there")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[PIPELINE.yaml]", help="settings of the stages")
    ] = None,
    launcher: Annotated[
        str | None, typer.Option(help="command that starts a training, as 'deepspeed --num_gpus 2'")
    ] = None,
) -> None:
    """Train all stages from hits to tracks.

    Stages that are trained already are kept.
    """
    from bigtrk.pipeline.training import train_pipeline

    train_pipeline(events, out, file, launcher)
    say(f"the pipeline is in {out}; 'bigtrk reconstruct {shell_word(out)} EVENTS OUT' makes tracks")


def reconstruct(
    folder: Annotated[Path, typer.Argument(metavar="PIPELINE", help="folder of a pipeline")],
    events: Annotated[Path, typer.Argument(help="folder or zip of events; truth is not read")],
    out: Annotated[Path, typer.Argument(help="folder for the tracks")],
    hits_min: HitsMin = 3,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="least quality of a track; default: the pipeline's"),
    ] = None,
    max_edges: MaxEdges = None,
    precision: Precise = None,
    spill: Spill = None,
    code: Code = None,
    fitted: Annotated[
        bool, typer.Option("--fit", help="also fit the tracks, as `bigtrk fit` does")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make tracks of hits, by a trained pipeline.

    It writes a Parquet file of tracks per event, and a TrackML submission of all events.

    Ranks share the events: torchrun --nproc-per-node 4 -m bigtrk reconstruct ...
    """
    from bigtrk.parallel.collectives import gather_items, together
    from bigtrk.parallel.ranks import discover
    from bigtrk.pipeline.reconstruct import reconstruct_folder

    if fitted:
        from bigtrk.formats.acts.fit import fit_folder
        from bigtrk.formats.acts.software import load_acts

        load_acts()  # before hours of work
    allow_code(code or ())
    options = MakingOptions(hits_min, max_edges, precision)
    fits: list[FitCounts] = []

    def make(ranks: "Ranks") -> "TracksMade":
        made = reconstruct_folder(folder, events, out, options, ranks, threshold, spill)
        if fitted and not made.failed:
            share = ranks.rank, ranks.world_size
            fits.extend(gather_items(together(lambda: fit_folder(out, events, out, share=share))))
        return made

    _show_made(make, as_json)
    if fits and discover().is_first:
        # With --json standard output is JSON alone.
        (complain if as_json else say)(f"{reduce(add, fits)} are in {out}")


def baseline(
    events: Annotated[Path, typer.Argument(help="folder or zip of events of TrackML's detector")],
    out: Annotated[Path, typer.Argument(help="folder for the tracks")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CHAIN.yaml] [KEY=VALUE ...]", help="settings of ACTS's chain"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make tracks of hits by ACTS's Kalman filter, to compare.

    This is the classical chain: seeds, combinatorial Kalman filter, ambiguity resolution. It needs
    ACTS: pip install 'bigtrk[acts]' (docs/kalman_filter.md).
    """
    from bigtrk.formats.acts.finding import baseline_folder, chain_settings

    found = baseline_folder(events, out, chain_settings(settings or []))
    tracks = sum(one["tracks"] for one in found.values())
    counts = f"{number_of(tracks, 'track')} of {number_of(len(found), 'event')}"
    said = f"found {counts} in {out}"
    if sum(1 for _ in out.glob("*-tracks.parquet")) > len(found):
        said += "; tracks that were there already are kept"
    print_result({"events": found}, as_json, lambda: say(said))


def fit(
    tracks: TracksFrom,
    events: Annotated[Path, typer.Argument(help="folder or zip of events of TrackML's detector")],
    out: Annotated[Path, typer.Argument(help="folder for the fitted parameters")],
    chi2_max: Annotated[
        float | None,
        typer.Option(min=0, help="also write the tracks with at most this chi2 / ndf"),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="write ACTS's CSV, too")] = False,
    as_json: AsJson = False,
) -> None:
    """Fit tracks by ACTS's Kalman filter.

    It writes a Parquet file per event, with the parameters at the beam line and their covariance.
    A track without a fit is kept and marked. It needs ACTS: pip install 'bigtrk[acts]'.
    """
    from bigtrk.formats.acts.fit import fit_folder

    counts = fit_folder(tracks, events, out, chi2_max, csv)
    print_result(vars(counts), as_json, lambda: say(f"{counts} are in {out}"))


def infer(
    run: Annotated[Path, typer.Argument(help="run of an edge model")],
    graphs: Annotated[Path, typer.Argument(help="folder of graphs, with truth or without")],
    out: Annotated[Path, typer.Argument(help="folder for the tracks")],
    builder: Builder = None,
    score_cut: ScoreCut = None,
    hits_min: HitsMin = 3,
    max_edges: MaxEdges = None,
    precision: Precise = None,
    spill: Spill = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Make tracks of graphs, by a trained edge model.

    It writes a Parquet file of tracks per event, and a TrackML submission of all events.

    Ranks share the graphs: torchrun --nproc-per-node 4 -m bigtrk infer ...
    """
    from bigtrk.pipeline.reconstruct import infer_folder
    from bigtrk.tracks.builders.registry import make_builder

    build = make_builder(builder or BuilderName.COMPONENTS, score_cut)
    allow_code(code or ())
    options = MakingOptions(hits_min, max_edges, precision)
    _show_made(lambda ranks: infer_folder(run, graphs, out, build, options, ranks, spill), as_json)


def submit(
    run: Annotated[Path, typer.Argument(help="a pipeline, or a folder of tracks")],
    events: Annotated[Path, typer.Argument(help="folder or zip of events")],
    out: Annotated[Path, typer.Argument(help="file to write, such as mine.parquet")],
    majority_particles: Annotated[
        bool,
        typer.Option(
            "--majority-particles", help="add each track's majority particle, by the truth"
        ),
    ] = False,
    max_edges: MaxEdges = None,
    spill: Spill = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Write a submission to ColliderML's tracking task.

    It has a row for each hit. A pipeline makes the tracks first, in a folder next to OUT, such as
    mine-tracks for mine.parquet.

    Ranks share the events: torchrun --nproc-per-node 4 -m bigtrk submit ...
    """
    from bigtrk.formats.track_files import check_submission_name, submit_tracks
    from bigtrk.parallel.ranks import discover
    from bigtrk.pipeline.reconstruct import reconstruct_folder
    from bigtrk.records.pipeline import is_pipeline

    allow_code(code or ())
    check_submission_name(out)
    tracks, ranks = run, discover()
    if is_pipeline(run):
        tracks = out.with_name(f"{out.stem}-tracks")
        options = MakingOptions(max_edges=max_edges)
        made = _made_together(
            lambda ranks: reconstruct_folder(run, events, tracks, options, ranks, spill=spill)
        )
        if made.failed and not ranks.is_first:
            raise typer.Exit(2)
        if made.failed:
            paths = tracks, events, out
            raise InputError(
                f"{tracks}: {number_of(len(made.failed), 'event')} failed (see above); correct "
                f"them, or submit the others by 'bigtrk submit {' '.join(map(shell_word, paths))}'"
            )
    elif max_edges or spill:
        raise InputError(
            f"{run}: is no pipeline, so it takes no --max-edges and --spill; leave these out"
        )
    if ranks.is_first:
        found = submit_tracks(tracks, events, out, majority_particles)
        print_result(vars(found), as_json, lambda: say(f"{out}: {found}"))


def _show_made(make: "Callable[[Ranks], TracksMade]", as_json: bool) -> None:
    """Makes tracks on all ranks; rank 0 prints the results and exits with 2 if an event failed."""
    from bigtrk.parallel.ranks import discover
    from bigtrk.pipeline.reconstruct import show_tracks

    made = _made_together(make)
    if discover().is_first:
        print_result(made.as_json(), as_json, lambda: show_tracks(made, console))
        if made.failed:
            raise typer.Exit(2)


def _made_together(make: "Callable[[Ranks], TracksMade]") -> "TracksMade":
    """Makes tracks on all ranks and returns their outcomes."""
    from bigtrk.parallel.process_group import process_group
    from bigtrk.parallel.ranks import configure_process, discover

    ranks = discover()

    def made() -> "TracksMade":
        configure_process(ranks)
        with process_group(ranks):
            return make(ranks)

    found: TracksMade = exit_on_bad_input("bigtrk", made, rank=ranks.rank)
    return found
