"""Commands of the `bigtrk` program that judge and show: evaluate, score, report, watch, display."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigtrk.commands.options import (
    AsJson,
    Builder,
    HitsMin,
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
    run: Annotated[Path, typer.Argument(help="a run, a file of weights in it, or a pipeline")],
    data: Annotated[
        list[Path],
        typer.Argument(help="folders of graphs or sectors; for a pipeline, events with truth"),
    ],
    tracks: Annotated[
        bool,
        typer.Option("--tracks", help="also make tracks and score them (a pipeline always does)"),
    ] = False,
    builder: Builder = None,
    score_cut: ScoreCut = None,
    scan_cuts: Annotated[
        bool, typer.Option("--scan-cuts", help="with --tracks: also try 17 other score cuts")
    ] = False,
    hits_min: HitsMin = 3,
    pt_min: PtMin = 1.0,
    html: Page = None,
    spill: Spill = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a trained model's edges, and its tracks.

    For a pipeline it shows the losses of each stage. A run that has not ended is evaluated at its
    newest good checkpoint. RUN/best.safetensors evaluates the best epoch, RUN/averaged.safetensors
    the averaged weights. Each evaluation is a new file in RUN/evaluations.

    Ranks share the events in sectors: torchrun --nproc-per-node 2 -m bigtrk evaluate ...
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
                f"{run}: is a pipeline, which has its own track builder and cuts, and keeps edges "
                f"in memory; leave out --builder, --score-cut, --scan-cuts and --spill"
            )
        if len(data) > 1:
            raise InputError(f"{data[1]}: a pipeline takes one folder of events; leave this out")
        if ranks.world_size > 1:
            raise InputError(f"{run}: a single process evaluates a pipeline; start only one")
        losses = evaluate_pipeline(run, data[0], Criteria(hits_min, pt_min))
        made = pipeline_evaluation_report(read_pipeline(run), losses)
        _show_report(made, losses.model_dump(mode="json"), html, as_json)
        return
    scanned, chosen = SCAN_CUTS if scan_cuts else (), builder or BuilderName.COMPONENTS
    options = TrackOptions(hits_min, pt_min, score_cut=score_cut, builder=chosen, scan_cuts=scanned)
    configure_process(ranks)
    with process_group(ranks, evaluated_configuration(run).run.patience):
        evaluation = evaluate_run(run, data, options if tracks else None, ranks, spill)
    if ranks.is_first:
        if (run_of(run) / RUN).is_file():
            refresh_card(run_of(run))
        made = evaluation_report(evaluation, read_run_if_any(run_of(run)))
        _show_report(made, evaluation.model_dump(mode="json"), html, as_json)


def _show_report(report: "Document", content: object, html: Path | None, as_json: bool) -> None:
    """Writes the page of a report, then prints the report, or `content` as JSON."""
    from bigtrk.reports.page import write_page
    from bigtrk.reports.terminal import show

    if html:
        write_page(report, html)
    print_result(content, as_json, lambda: show(report, console))
    if html and not as_json:
        say(f"{html}: open it in a browser")


def score(
    tracks: TracksFrom,
    events: Annotated[Path, typer.Argument(help="folder or zip of events with truth")],
    pt_min: PtMin = 1.0,
    hits_min: HitsMin = 3,
    matching_fraction: Annotated[
        float,
        typer.Option(min=0, max=1, help="share of hits that must match; 0.5: more than half"),
    ] = 0.5,
    task: Annotated[
        Task | None, typer.Option(help="also judge by this public task, over all EVENTS")
    ] = None,
    no_track: Annotated[
        int, typer.Option(help="track id of hits that are in no track, besides -1")
    ] = -1,
    rules: Annotated[
        Rules | None, typer.Option(help="also score by the rules of published figures")
    ] = None,
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Judge tracks from anywhere by the truth of their events.

    Hits that TRACKS does not list, or lists with track -1, are in no track. If `bigtrk fit` has
    written fits to the same folder, their pulls and resolutions are judged, too.
    """
    from bigtrk.reports.evaluation import score_report
    from bigtrk.tracks.matching import Criteria
    from bigtrk.tracks.score_files import score_files

    criteria = Criteria(hits_min, pt_min, matching_fraction)
    found = score_files(tracks, events, criteria, task, no_track, rules)
    _show_report(score_report(found), found.model_dump(mode="json"), html, as_json)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="folders of runs, pipelines or `bigtrk scale`, or of one search"),
    ],
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Show results of runs, series, pipelines or a search.

    Several runs, series or pipelines are shown side by side. A search may still be running.
    For series --json prints one line per number of ranks.
    """
    from bigtrk.records.pipeline import is_pipeline, read_pipeline
    from bigtrk.records.run_folder import read_run
    from bigtrk.records.studies import is_search, is_series, read_search
    from bigtrk.reports.pipeline import pipelines_report, summarise_pipelines
    from bigtrk.reports.runs import runs_report, summarise
    from bigtrk.reports.search import search_report, summarise_search

    if any(map(is_series, runs)):
        from bigtrk.studies.scaling.report import series_report

        document, lines = series_report(runs)
        _show_report(document, lines.rstrip("\n"), html, as_json)
    elif any(map(is_pipeline, runs)):
        pipelines = [read_pipeline(folder) for folder in runs]
        content = summarise_pipelines(pipelines)
        _show_report(pipelines_report(pipelines), content, html, as_json)
    elif any(map(is_search, runs)):
        if len(runs) > 1:
            named = ", ".join(map(str, runs))
            raise InputError(f"{named}: a search is shown without other folders; name only one")
        search = read_search(runs[0])
        _show_report(search_report(search), summarise_search(search), html, as_json)
    else:
        read = [read_run(path) for path in runs]
        _show_report(runs_report(read), summarise(read), html, as_json)


def watch(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs, even before they start")],
) -> None:
    """Show runs while they train.

    It shows ranks, epoch, step, losses, rate and stalls, and ends when all runs have ended.
    Without a terminal it prints a line whenever there is something new. It writes nothing.
    """
    from bigtrk.reports.watch import watch_runs

    with suppress(KeyboardInterrupt):
        watch_runs(runs, console)


def display(
    run: Annotated[Path, typer.Argument(help="run of an edge model, or a pipeline")],
    data: Annotated[Path, typer.Argument(help="folder of graphs; for a pipeline, of events")],
    page: Annotated[Path, typer.Argument(help="HTML page to write", callback=check_page)],
    event: Annotated[str | None, typer.Option(help="name of the event; default: the first")] = None,
    builder: Builder = None,
    score_cut: ScoreCut = None,
    hits_min: HitsMin = 3,
    pt_min: PtMin = 1.0,
    parts: Annotated[int | None, typer.Option(min=1, help="sectors to cut the event into")] = None,
    code: Code = None,
) -> None:
    """Draw an event: its hits, tracks and sectors.

    The page shows it in three dimensions, across the beam and along it.
    """
    from bigtrk.parallel.ranks import discover
    from bigtrk.pipeline.event_display import display_event
    from bigtrk.records.pipeline import is_pipeline
    from bigtrk.tracks.matching import Criteria

    allow_code(code or ())
    if is_pipeline(run) and (builder or score_cut is not None):
        raise InputError(f"{run}: a pipeline has its own --builder and --score-cut; leave them out")
    of_run, device = (builder or BuilderName.COMPONENTS, score_cut), discover().device
    display_event(run, data, page, Criteria(hits_min, pt_min), event, parts, of_run, device)
    say(f"{page}: open it in a browser")
