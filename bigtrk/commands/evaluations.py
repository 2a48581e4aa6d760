"""The command of the `bigtrk` program that evaluates models and pipelines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigtrk.commands.options import (
    AsJson,
    MinHits,
    PtMin,
    Spill,
    check_page,
    spill_folder,
)
from bigtrk.commands.pipelines import evaluate_stages
from bigtrk.console import console, print_result
from bigtrk.errors import InputError
from bigtrk.tracks.names import BuilderName
from bigtrk.user_code import Code, allow_code

if TYPE_CHECKING:
    from bigtrk.tracks.evaluation import TrackOptions
    from bigtrk.training.steps.spill import SpillFolder


Run = Annotated[
    Path,
    typer.Argument(
        help="run folder of bigtrk/train.py, a file of weights in it, or folder of a pipeline"
    ),
]
Data = Annotated[
    list[Path],
    typer.Argument(
        help="folders of graphs or sectors; of a pipeline, folder or zip of events with truth"
    ),
]
Tracks = Annotated[
    bool, typer.Option("--tracks", help="build tracks and score them; a pipeline always does")
]
Builder = Annotated[
    BuilderName | None, typer.Option(help="what makes tracks of scored edges; components")
]
ScoreCut = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="edges above this score make tracks; else the builder's own cut"
    ),
]
ScanCuts = Annotated[
    bool, typer.Option("--scan-cuts", help="with --tracks: also the tracks by other score cuts")
]
Page = Annotated[
    Path | None,
    typer.Option(
        help="also write one HTML page, with plots against pT and eta", callback=check_page
    ),
]


def evaluate(
    run: Run,
    data: Data,
    tracks: Tracks = False,
    builder: Builder = None,
    score_cut: ScoreCut = None,
    scan_cuts: ScanCuts = False,
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
    from bigtrk.records.pipeline import is_pipeline
    from bigtrk.tracks.evaluation import SCAN_CUTS, TrackOptions

    allow_code(code or ())
    folder = spill_folder(spill)
    if is_pipeline(run):
        if builder or score_cut is not None or scan_cuts or folder:
            raise InputError(
                f"{run}: a pipeline has its own track builder and cuts, and events that fit; leave "
                f"--builder, --score-cut, --scan-cuts and --spill out"
            )
        if len(data) > 1:
            raise InputError(f"{data[1]}: a pipeline is evaluated on one folder; leave it out")
        evaluate_stages(run, data[0], min_hits, pt_min, html, as_json)
        return
    scanned = SCAN_CUTS if scan_cuts else ()
    chosen = builder or BuilderName.COMPONENTS
    options = TrackOptions(score_cut, min_hits, pt_min, builder=chosen, scan_cuts=scanned)
    _evaluate_model(run, data, options if tracks else None, folder, html, as_json)


def _evaluate_model(
    run: Path,
    data: list[Path],
    options: "TrackOptions | None",
    spill: "SpillFolder | None",
    html: Path | None,
    as_json: bool,
) -> None:
    """Evaluates a run's model, on all ranks; the first prints and writes what was found."""
    from bigtrk.parallel.host import configure_process
    from bigtrk.parallel.process_group import process_group
    from bigtrk.parallel.ranks import discover
    from bigtrk.records.run_folder import RUN, read_run_if_any
    from bigtrk.reports import evaluation_report, show, write_page
    from bigtrk.reports.model_card import refresh_card
    from bigtrk.training.evaluation.evaluate import evaluate_run, evaluated_configuration
    from bigtrk.training.run_folder import run_of

    ranks = discover()
    configure_process(ranks)
    with process_group(ranks, evaluated_configuration(run).run.patience):
        evaluation = evaluate_run(run, data, options, ranks, spill)
    if ranks.is_first:  # which writes before it prints: the reader of that may leave
        if (run_of(run) / RUN).is_file():
            refresh_card(run_of(run))
        report = evaluation_report(evaluation, read_run_if_any(run_of(run)))
        if html:
            write_page(report, html)
        content = evaluation.model_dump(mode="json")
        print_result(content, as_json, lambda: show(report, console))
