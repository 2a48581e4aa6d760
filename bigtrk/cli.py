"""The `bigtrk` program: from events to graphs, sectors, trained models, tracks and reports."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bigtrk
from bigtrk.commands.displays import display
from bigtrk.commands.evaluations import evaluate
from bigtrk.commands.exports import export
from bigtrk.commands.graphs import build, simulate
from bigtrk.commands.models import check_model, import_model
from bigtrk.commands.options import AsJson, MinHits, PtMin, check_page
from bigtrk.commands.pipelines import (
    filter_graphs,
    infer,
    pipeline,
    reconstruct,
    report_pipelines,
    submit,
)
from bigtrk.commands.plans import plan
from bigtrk.commands.searches import report_search, search
from bigtrk.commands.studies import scale
from bigtrk.commands.watches import watch
from bigtrk.console import console, exit_on_bad_input, print_result, run_commands
from bigtrk.errors import InputError
from bigtrk.tracks.names import Task
from bigtrk.user_code import Code, allow_code

if TYPE_CHECKING:
    pass

# Each command imports what it needs: torch alone takes seconds that `--help` should not.
app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
# What to use instead of commands and options that are gone.
_GONE = {
    "audit": "use python -m scripts.studies.gradient_audit in a checkout",
    "study": "use python -m scripts.studies.sampling_study in a checkout",
    "search --executor": "use --launcher COMMAND",
    "report --pdf": "use bigtrk report RUN --html PAGE, then print it",
    **{
        f"{command} --spill-to-network": "a folder on a network file system is used, and noticed"
        for command in ("evaluate", "infer", "reconstruct", "submit")
    },
    "watch --serve": "it shows runs in the terminal; for a page set run.loggers=[tensorboard]",
    "watch --port": "it shows runs in the terminal; for a page set run.loggers=[tensorboard]",
    "plan --seed": "it draws no events any more; bigtrk scale measures more ranks",
    "plan --calibrate": "use bigtrk plan --choose --try, which measures steps, or --measured RUN",
    "plan --check": "use bigtrk plan --measured RUN, which takes the seconds of a run",
    "plan --allow-bf16": "set model.precision=bf16",
    "build --module-map-windows": "windows are around all that a module map has seen",
}
# Two commands are programs of their own, which read what follows their names, `--help` too.
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"bigtrk {bigtrk.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print it and end"),
    ] = False,
) -> None:
    """Takes the options that stand before a command."""


app.command()(simulate)
app.command()(build)


@app.command(context_settings=_PASSED_ON, add_help_option=False)
def partition(context: typer.Context) -> None:
    """Cut event graphs into sectors that train together with halo exchange."""
    from partition.cli import main as cut

    cut("bigtrk partition", context.args)


@app.command(context_settings=_PASSED_ON, add_help_option=False)
def train(context: typer.Context) -> None:
    """Train a track-finding graph network: the same under torchrun, srun and alone."""
    from bigtrk.program import main as fit

    fit("bigtrk train", context.args)


@app.command()
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
    from argparse import Namespace

    from bigtrk.parallel.ranks import discover
    from bigtrk.program import run as train

    ranks = discover()
    arguments = Namespace(arguments=settings or [], resume=run, code=code or [])
    exit_on_bad_input("bigtrk resume", lambda: train(ranks, arguments), rank=ranks.rank)


app.command()(evaluate)


@app.command()
def score(
    tracks: Annotated[
        Path,
        typer.Argument(
            help="folder of event<id>-tracks.parquet, one such file, or a submission: parquet, or "
            "TrackML's CSV"
        ),
    ],
    events: Annotated[Path, typer.Argument(help="folder or zip of events with truth")],
    pt_min: PtMin = 1.0,
    min_hits: MinHits = 3,
    matching_fraction: Annotated[
        float,
        typer.Option(min=0, max=1, help="share of hits that makes a match; 0.5: more than half"),
    ] = 0.5,
    task: Annotated[
        Task | None,
        typer.Option(help="of a public arena: its metrics, too; all of EVENTS count"),
    ] = None,
    no_track: Annotated[
        int, typer.Option(help="track id of hits in no track, such as 0; -1 always is")
    ] = -1,
    as_json: AsJson = False,
) -> None:
    """Judge tracks from anywhere by the truth of their events.

    Hits that TRACKS does not list are in no track, as are those of track -1.
    """
    from bigtrk.reports import score_report, show
    from bigtrk.tracks.matching import Criteria
    from bigtrk.training.evaluation.tracks import score_files

    criteria = Criteria(min_hits, pt_min, matching_fraction)
    found = score_files(tracks, events, criteria, task, no_track)
    print_result(found.model_dump(mode="json"), as_json, lambda: show(score_report(found), console))


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="run folders, folders of `bigtrk scale`, those of pipelines, or that of a search"
        ),
    ],
    html: Annotated[
        Path | None, typer.Option(help="also write one HTML page", callback=check_page)
    ] = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Scaling, metrics and time shares of one run or series, or of several side by side; of
    pipelines the losses of each stage; of a search its trials, also while it goes on.

    --json prints a line per number of ranks for series. --code is for a series, whose predicted
    times ask for the model.
    """
    from bigtrk.records.pipeline import is_pipeline
    from bigtrk.records.search import is_search
    from bigtrk.reports import read_run, runs_report, show, summarise, write_page
    from bigtrk.studies.scaling.series import is_series

    allow_code(code or ())
    if any(map(is_series, runs)):
        # It predicts the times of series, and needs torch for that: a second of a run's report.
        from bigtrk.studies.scaling.report import series_report

        series = series_report(runs)
        if html:
            write_page(series.document, html)
        if as_json:
            print(series.text, end="")
        else:
            show(series.document, console)
        return
    if any(map(is_pipeline, runs)):
        report_pipelines(runs, html, as_json)
        return
    if any(map(is_search, runs)):
        report_search(runs, html, as_json)
        return
    read = [read_run(path) for path in runs]
    if html:
        write_page(runs_report(read), html)
    print_result(summarise(read), as_json, lambda: show(runs_report(read), console))


app.command()(plan)
app.command("check-model")(check_model)
app.command("filter")(filter_graphs)
app.add_typer(pipeline, name="pipeline")
app.add_typer(export, name="export")
app.command("import-model", no_args_is_help=True)(import_model)
app.command()(reconstruct)
app.command()(infer)
app.command()(submit)
app.command()(display)
app.command()(scale)
app.command()(search)
app.command()(watch)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show what is installed, what a run would use, what is missing and how to get it."""
    from bigtrk.doctor import examine, show

    findings = examine()
    print_result(findings, as_json, lambda: show(findings, console))
    raise typer.Exit(0 if findings["ready"] else 1)


@app.command()
def demo(
    out: Annotated[Path, typer.Argument(help="folder for all that it makes")],
    particles: Annotated[
        int, typer.Option(min=1, help="particles per event; of fewer less is learnt, and sooner")
    ] = 3000,
    seed: Annotated[int, typer.Option(min=0, help="of the events and of the weights")] = 0,
) -> None:
    """The main job on simulated events: simulate, build, partition, train, evaluate, report.

    Then the pipeline in small: from hits without truth to tracks, which are judged.
    """
    from bigtrk.demo import run_demo

    run_demo(out, particles, seed)


def _refuse_what_is_gone(arguments: Sequence[str]) -> None:
    """Raises InputError where the command line has a command or an option that is gone."""
    command = arguments[0] if arguments else ""
    for option in ("", *(argument.partition("=")[0] for argument in arguments[1:])):
        asked = f"{command} {option}".strip()
        if instead := _GONE.get(asked):
            raise InputError(f"{asked} is gone; {instead}")


def main() -> None:
    """Runs the program; the entry point of the console script."""
    exit_on_bad_input("bigtrk", lambda: _refuse_what_is_gone(sys.argv[1:]))
    run_commands("bigtrk", app)


if __name__ == "__main__":
    main()
