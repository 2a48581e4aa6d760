"""The commands of the `bigtrk` program that judge and show: evaluate, score, report, watch,
display.
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigtrk.commands.options import (
    AsJson,
    Builder,
    MinHits,
    Page,
    PtMin,
    ScoreCut,
    Spill,
    TracksFrom,
    check_page,
)
from bigtrk.console import console, print_result, say
from bigtrk.errors import InputError
from bigtrk.tracks.names import BuilderName, Rules, Task
from bigtrk.user_code import Code, allow_code

if TYPE_CHECKING:
    from bigtrk.reports.document import Document


def evaluate(
    run: Annotated[Path, typer.Argument(help="run, weights in it, or folder of a pipeline")],
    data: Annotated[
        list[Path],
        typer.Argument(help="folders of graphs or sectors; of a pipeline, events with truth"),
    ],
    tracks: Annotated[
        bool,
        typer.Option("--tracks", help="build tracks and score them; a pipeline always does"),
    ] = False,
    builder: Builder = None,
    score_cut: ScoreCut = None,
    scan_cuts: Annotated[
        bool, typer.Option("--scan-cuts", help="with --tracks: also the tracks by other score cuts")
    ] = False,
    min_hits: MinHits = 3,
    pt_min: PtMin = 1.0,
    html: Page = None,
    spill: Spill = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Edge metrics, and tracks, of a trained model; of a pipeline what each stage loses.

    Until a run ends, that of its newest good checkpoint; with RUN/best.safetensors or
    RUN/averaged.safetensors that of the best epoch or of averaged weights. Each evaluation is a new
    file in RUN/evaluations.

    Under torchrun, events in sectors are shared by ranks: torchrun ... -m bigtrk evaluate.
    """
    from bigtrk.parallel.process_group import process_group
    from bigtrk.parallel.ranks import configure_process, discover
    from bigtrk.records.pipeline import is_pipeline
    from bigtrk.records.run_folder import RUN, read_run_if_any
    from bigtrk.reports.evaluation import evaluation_report
    from bigtrk.reports.model_card import refresh_card
    from bigtrk.tracks.evaluation import SCAN_CUTS, TrackOptions
    from bigtrk.training.evaluation.evaluate import evaluate_run, evaluated_configuration
    from bigtrk.training.run_folder import run_of

    allow_code(code or ())
    ranks = discover()
    if is_pipeline(run):
        from bigtrk.pipeline.evaluation import evaluate_pipeline
        from bigtrk.records.pipeline import read_pipeline
        from bigtrk.reports.pipeline import pipeline_evaluation_report
        from bigtrk.tracks.matching import Criteria

        if builder or score_cut is not None or scan_cuts or spill:
            raise InputError(
                f"{run}: a pipeline has its own track builder and cuts, and events that fit; leave "
                f"--builder, --score-cut, --scan-cuts and --spill out"
            )
        if len(data) > 1:
            raise InputError(f"{data[1]}: a pipeline is evaluated on one folder; leave it out")
        if ranks.world_size > 1:
            raise InputError(f"{run}: one rank evaluates a pipeline; start it without a launcher")
        losses = evaluate_pipeline(run, data[0], Criteria(min_hits, pt_min))
        made = pipeline_evaluation_report(read_pipeline(run), losses)
        _give(made, losses.model_dump(mode="json"), html, as_json)
        return
    scanned, chosen = SCAN_CUTS if scan_cuts else (), builder or BuilderName.COMPONENTS
    options = TrackOptions(min_hits, pt_min, score_cut=score_cut, builder=chosen, scan_cuts=scanned)
    configure_process(ranks)
    with process_group(ranks, evaluated_configuration(run).run.patience):
        evaluation = evaluate_run(run, data, options if tracks else None, ranks, spill)
    if ranks.is_first:
        if (run_of(run) / RUN).is_file():
            refresh_card(run_of(run))
        made = evaluation_report(evaluation, read_run_if_any(run_of(run)))
        _give(made, evaluation.model_dump(mode="json"), html, as_json)


def _give(report: "Document", content: object, html: Path | None, as_json: bool) -> None:
    """Writes a report's page, then prints the report or its content, whose reader may leave."""
    from bigtrk.reports.page import write_page
    from bigtrk.reports.terminal import show

    if html:
        write_page(report, html)
    print_result(content, as_json, lambda: show(report, console))


def score(
    tracks: TracksFrom,
    events: Annotated[Path, typer.Argument(help="folder or zip of events with truth")],
    pt_min: PtMin = 1.0,
    min_hits: MinHits = 3,
    matching_fraction: Annotated[
        float,
        typer.Option(min=0, max=1, help="share of hits that makes a match; 0.5: more than half"),
    ] = 0.5,
    task: Annotated[
        Task | None, typer.Option(help="of a public arena: its metrics, too; all of EVENTS count")
    ] = None,
    no_track: Annotated[
        int, typer.Option(help="track id of hits in no track, such as 0; -1 always is")
    ] = -1,
    rules: Annotated[
        Rules | None, typer.Option(help="also by the rules of published figures")
    ] = None,
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Judge tracks from anywhere by the truth of their events.

    Hits that TRACKS does not list are in no track, as are those of track -1. Fits in the folder of
    the tracks, by `bigtrk fit`, are judged, too: pulls and resolutions.
    """
    from bigtrk.reports.evaluation import score_report
    from bigtrk.tracks.matching import Criteria
    from bigtrk.tracks.score_files import score_files

    criteria = Criteria(min_hits, pt_min, matching_fraction)
    found = score_files(tracks, events, criteria, task, no_track, rules)
    _give(score_report(found), found.model_dump(mode="json"), html, as_json)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="folders of runs, of `bigtrk scale`, of pipelines, or of a search"),
    ],
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Scaling, metrics and time shares of one run or series, or of several side by side; of
    pipelines the losses of each stage; of a search its trials, also while it goes on.

    --json prints a line per number of ranks for series.
    """
    from bigtrk.records.pipeline import is_pipeline, read_pipeline
    from bigtrk.records.run_folder import read_run
    from bigtrk.records.studies import is_search, is_series, read_search
    from bigtrk.reports.page import write_page
    from bigtrk.reports.pipeline import pipelines_report, summarise_pipelines
    from bigtrk.reports.runs import runs_report, summarise
    from bigtrk.reports.search import search_report, summarise_search
    from bigtrk.reports.terminal import show

    if any(map(is_series, runs)):
        from bigtrk.studies.scaling.report import series_report

        series = series_report(runs)
        if html:
            write_page(series.document, html)
        if as_json:
            print(series.text, end="")
        else:
            show(series.document, console)
    elif any(map(is_pipeline, runs)):
        pipelines = [read_pipeline(folder) for folder in runs]
        content = summarise_pipelines(pipelines)
        _give(pipelines_report(pipelines), content, html, as_json)
    elif any(map(is_search, runs)):
        if len(runs) > 1:
            raise InputError(
                f"{', '.join(map(str, runs))}: a search is reported alone; name one, or runs"
            )
        search = read_search(runs[0])
        _give(search_report(search), summarise_search(search), html, as_json)
    else:
        read = [read_run(path) for path in runs]
        _give(runs_report(read), summarise(read), html, as_json)


def watch(
    runs: Annotated[list[Path], typer.Argument(help="run folders, also of runs to come")],
) -> None:
    """Show runs while they train: ranks, epoch, step, losses, rate, stalls.

    Without a terminal: a line whenever there is something new. It ends when all runs have, and
    writes nothing into their folders.
    """
    from bigtrk.reports.watch import watch_runs

    with suppress(KeyboardInterrupt):
        watch_runs(runs, console)


def display(
    run: Annotated[Path, typer.Argument(help="run of an edge model, or folder of a pipeline")],
    data: Annotated[Path, typer.Argument(help="folder of graphs; of a pipeline, of events")],
    page: Annotated[Path, typer.Argument(help="HTML page to write", callback=check_page)],
    event: Annotated[str | None, typer.Option(help="event's name; else the first")] = None,
    builder: Builder = None,
    score_cut: ScoreCut = None,
    min_hits: MinHits = 3,
    pt_min: PtMin = 1.0,
    parts: Annotated[int | None, typer.Option(min=1, help="sectors to cut it into")] = None,
    code: Code = None,
) -> None:
    """Draw an event in three dimensions, across and along the beam: hits, tracks and sectors."""
    from bigtrk.parallel.ranks import discover
    from bigtrk.pipeline.event_display import display_event
    from bigtrk.records.pipeline import is_pipeline
    from bigtrk.tracks.matching import Criteria

    allow_code(code or ())
    if is_pipeline(run) and (builder or score_cut is not None):
        raise InputError(
            f"{run}: a pipeline has its own track builder; leave --builder and --score-cut out"
        )
    of_run, device = (builder or BuilderName.COMPONENTS, score_cut), discover().device
    display_event(run, data, page, Criteria(min_hits, pt_min), event, parts, of_run, device)
    say(f"{page}: open it in a browser")
