"""The `bigtrk` program: from events to graphs, sectors, trained models, tracks and reports."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import bigtrk
from bigtrk.commands.audits import audit
from bigtrk.commands.exports import export
from bigtrk.commands.graphs import build, simulate
from bigtrk.commands.models import check_model, import_model
from bigtrk.commands.pipelines import (
    evaluate_stages,
    filter_graphs,
    infer,
    pipeline,
    reconstruct,
    report_pipelines,
    submit,
)
from bigtrk.commands.studies import scale, study
from bigtrk.console import console, exit_on_bad_input, print_result, run_commands
from bigtrk.errors import InputError
from bigtrk.tracks.builders.names import BuilderName
from bigtrk.tracks.public_scores.task_names import Task
from bigtrk.user_code import Code, allow_code

if TYPE_CHECKING:
    from bigtrk.tracks.evaluation import TrackOptions

# Each command imports what it needs: torch alone takes seconds that `--help` should not.
app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
# Two commands are programs of their own, which read what follows their names, `--help` too.
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]


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


def _check_page(page: Path | None) -> Path | None:
    """Refuses a page that could not be written, before anything is computed for it.

    Raises:
        InputError: its folder is missing, or it is one itself.
    """
    if page and not page.parent.is_dir():
        raise InputError(f"{page}: no such folder {page.parent}; make it, or name another")
    if page and page.is_dir():
        raise InputError(f"{page}: is a folder; name a file in it, such as {page / 'report.html'}")
    return page


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
    from bigtrk.train import main as fit

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
    from bigtrk.train import run as train

    ranks = discover()
    arguments = Namespace(arguments=settings or [], resume=run, code=code or [])
    exit_on_bad_input("bigtrk resume", lambda: train(ranks, arguments), rank=ranks.rank)


@app.command()
def evaluate(
    run: Annotated[
        Path,
        typer.Argument(help="run folder of bigtrk/train.py, or folder of a pipeline"),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="folder of graphs or sectors; of a pipeline, folder or zip of events with truth"
        ),
    ],
    tracks: Annotated[
        bool, typer.Option("--tracks", help="build tracks and score them; a pipeline always does")
    ] = False,
    builder: Annotated[
        BuilderName | None, typer.Option(help="what makes tracks of scored edges; components")
    ] = None,
    score_cut: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="edges above this score make tracks; else the builder's own cut"
        ),
    ] = None,
    scan_cuts: Annotated[
        bool, typer.Option("--scan-cuts", help="with --tracks: also the tracks by other score cuts")
    ] = False,
    min_hits: Annotated[int, typer.Option(min=1, help="shortest track, in hits")] = 3,
    pt_min: Annotated[
        float, typer.Option(min=0, help="GeV; particles a track finder must find")
    ] = 1.0,
    html: Annotated[
        Path | None,
        typer.Option(
            help="also write one HTML page, with plots against pT and eta", callback=_check_page
        ),
    ] = None,
    spill: Annotated[
        Path | None,
        typer.Option(help="folder of a local disk for edges that memory has no room for"),
    ] = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Edge metrics, and tracks, of a trained model; of a pipeline what each stage loses.

    Until a run ends, that of its newest good checkpoint. Each evaluation is a new file in
    RUN/evaluations.

    Under torchrun, events in sectors are shared by ranks: torchrun ... -m bigtrk evaluate.
    """
    from bigtrk.records.pipeline_folder import is_pipeline
    from bigtrk.tracks.evaluation import SCAN_CUTS, TrackOptions

    allow_code(code or ())
    if is_pipeline(run):
        if builder or score_cut is not None or scan_cuts or spill:
            raise InputError(
                f"{run}: a pipeline has its own track builder and cuts, and events that fit; leave "
                f"--builder, --score-cut, --scan-cuts and --spill out"
            )
        evaluate_stages(run, data, min_hits, pt_min, html, as_json)
        return
    scanned = SCAN_CUTS if scan_cuts else ()
    chosen = builder or BuilderName.COMPONENTS
    options = TrackOptions(score_cut, min_hits, pt_min, builder=chosen, scan_cuts=scanned)
    _evaluate_model(run, data, options if tracks else None, spill, html, as_json)


def _evaluate_model(
    run: Path,
    data: Path,
    options: "TrackOptions | None",
    spill: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Evaluates a run's model, on all ranks; the first prints and writes what was found."""
    from bigtrk.parallel.host import configure_process
    from bigtrk.parallel.process_group import process_group
    from bigtrk.parallel.ranks import discover
    from bigtrk.reports import show_evaluation, write_evaluation_html
    from bigtrk.training.evaluation.evaluate import evaluate_run
    from bigtrk.training.evaluation.evaluated_model import evaluated_configuration

    ranks = discover()
    configure_process(ranks)
    with process_group(ranks, evaluated_configuration(run).run.patience):
        evaluation = evaluate_run(run, data, options, ranks, spill)
    if ranks.is_first:
        if html:  # before what is printed, whose reader may leave
            write_evaluation_html(evaluation, html)
        content = evaluation.model_dump(mode="json")
        print_result(content, as_json, lambda: show_evaluation(evaluation, console))


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
    pt_min: Annotated[
        float, typer.Option(min=0, help="GeV; particles a track finder must find")
    ] = 1.0,
    min_hits: Annotated[int, typer.Option(min=1, help="shortest track, in hits")] = 3,
    matching_fraction: Annotated[
        float,
        typer.Option(min=0, max=1, help="share of hits that makes a match; 0.5: more than half"),
    ] = 0.5,
    task: Annotated[
        Task | None,
        typer.Option(help="of a public arena: its metrics, too; all of EVENTS count"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge tracks from anywhere by the truth of their events.

    Hits that TRACKS does not list are in no track, as are those of track -1.
    """
    from bigtrk.reports import show_score
    from bigtrk.tracks.matching import Criteria
    from bigtrk.training.evaluation.score_files import score_files

    criteria = Criteria(min_hits, pt_min, matching_fraction)
    found = score_files(tracks, events, criteria, task)
    print_result(found.model_dump(mode="json"), as_json, lambda: show_score(found, console))


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="run folders, folders of `bigtrk scale`, or those of pipelines"),
    ],
    html: Annotated[
        Path | None, typer.Option(help="also write one HTML page", callback=_check_page)
    ] = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Scaling, metrics and time shares of one run or series, or of several side by side; of
    pipelines the losses of each stage.

    --json prints a line per number of ranks for series. --code is for a series, whose predicted
    times ask for the model.
    """
    from bigtrk.records.pipeline_folder import is_pipeline
    from bigtrk.reports import read_run, show, summarise, write_html
    from bigtrk.studies.scaling.report import SeriesReport
    from bigtrk.studies.scaling.series import is_series

    allow_code(code or ())
    if any(map(is_series, runs)):
        series = SeriesReport(runs)
        if html:
            series.write_html(html)
        if as_json:
            print("\n".join(map(json.dumps, series.lines())))
        else:
            series.show(console)
        return
    if any(map(is_pipeline, runs)):
        report_pipelines(runs, html, as_json)
        return
    read = [read_run(path) for path in runs]
    if html:
        write_html(read, html)
    print_result(summarise(read), as_json, lambda: show(read, console))


@app.command()
def plan(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG.yaml | key.sub=value | DATA]...",
            help="configuration as bigtrk/train.py takes it; folders of graphs or sectors. With "
            "--check: run folders",
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="of an event, with --edges")] = None,
    edges: Annotated[int | None, typer.Option(min=1, help="of an event, with --nodes")] = None,
    events: Annotated[
        str | None, typer.Option(help="event sizes of the papers: ex3, ctd, event1000")
    ] = None,
    ranks: Annotated[str, typer.Option(help="world sizes, to 4096")] = "1,2,4,8,16,32",
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, help="ranks per host; 4, with --check all on one")
    ] = None,
    memory: Annotated[float | None, typer.Option(min=0.1, max=1e6, help="GiB of each rank")] = None,
    machine: Annotated[
        str | None,
        typer.Option(help="a calibration file, or the defaults cpu or A100; else this machine"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the event sizes drawn")] = 0,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="measure this machine first: about four minutes")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="compare with what run folders recorded")
    ] = False,
    choose: Annotated[
        bool, typer.Option("--choose", help="choose a run's settings for --ranks and --memory")
    ] = False,
    allow_bf16: Annotated[
        bool, typer.Option("--allow-bf16", help="with --choose: the precision, too")
    ] = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Predict memory, the number of sectors that fits, step time and scaling, without training.

    --calibrate writes to bigtrk/calibration.json in the user's cache (XDG_CACHE_HOME, else
    ~/.cache), or to the file of --machine. Under torchrun it also measures the network between the
    ranks; the first of them writes. --choose leaves what is configured as it is, and prints the
    commands that cut the events and train; without events, those of the configuration.
    """
    from bigtrk.disk.cache import make_private
    from bigtrk.planning import calibration, choice_table
    from bigtrk.planning import command as planning
    from bigtrk.planning import plan as plans
    from bigtrk.planning import tables as plan_tables
    from bigtrk.train import DEFAULT
    from bigtrk.training import costs

    allow_code(code or ())
    if calibrate:
        path = Path(machine) if machine else costs.calibration_path()
        if not machine:
            make_private(path.parent)  # before what takes minutes
        constants = calibration.calibrate_launched(path)
        if constants is not None:
            found = constants.model_dump(mode="json")
            print_result(
                found, as_json, lambda: plan_tables.show_constants(found, str(path), console)
            )
    elif check:
        checks = planning.compare_runs(arguments or [], machine, ranks_per_node)
        print_result(checks, as_json, lambda: plan_tables.show_checks(checks, console))
    elif choose:
        chosen = planning.ask_choice(
            arguments or [],
            DEFAULT,
            planning.Sizes(nodes, edges, events),
            ranks,
            ranks_per_node or 4,
            memory,
            machine,
            allow_bf16,
        )
        print_result(chosen, as_json, lambda: choice_table.show_choice(chosen, console))
    else:
        sizes = planning.Sizes(nodes, edges, events)
        question = planning.ask(
            arguments or [], DEFAULT, sizes, ranks, ranks_per_node or 4, memory, machine, seed
        )
        answer = plans.make_plan(question)
        print_result(answer, as_json, lambda: plan_tables.show_plan(answer, console))


app.command("check-model")(check_model)
app.command("filter")(filter_graphs)
app.add_typer(pipeline, name="pipeline")
app.add_typer(export, name="export")
app.add_typer(import_model, name="import-model")
app.command()(reconstruct)
app.command()(infer)
app.command()(submit)
app.command()(scale)
app.command()(study)
app.command()(audit)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show what is installed, what a run would use, what is missing and how to get it."""
    from bigtrk.doctor import examine, show

    findings = examine()
    print_result(findings, as_json, lambda: show(findings, console))
    raise typer.Exit(0 if findings["ready"] else 1)


@app.command()
def demo(out: Annotated[Path, typer.Argument(help="folder for all that it makes")]) -> None:
    """The main job on simulated events: simulate, build, partition, train, evaluate, report.

    Then the pipeline in small: from hits without truth to tracks, which are judged.
    """
    from bigtrk.demo import run_demo

    run_demo(out)


def main() -> None:
    """Runs the program; the entry point of the console script."""
    run_commands("bigtrk", app)


if __name__ == "__main__":
    main()
