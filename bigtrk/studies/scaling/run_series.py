"""A scaling series on this host, taken up where it ended."""

import time

from bigtrk.console import console, say
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import (
    on_cores,
    resumable,
    torchrun_command,
    torchrun_environment,
    train_logged,
)
from bigtrk.studies.scaling.plan_series import PlannedRun, ScalingSeries, open_series
from bigtrk.studies.scaling.report import SeriesReport
from bigtrk.training.run_folder import WEIGHTS, remove_run
from bigtrk.user_code import code_options

LOG = "train.log"
PAGE, LINES = "report.html", "report.jsonl"


def run_series(series: ScalingSeries) -> None:
    """Trains all that is not trained yet, then reports; page and JSON lines go to its folder.

    Raises:
        InputError: a training failed, or the folder holds another series.
    """
    open_series(series)
    runs = series.runs()
    # A rank of each world gets as many cores, as on a cluster: else one rank would have all.
    cores = series.record.cores_per_rank
    assert cores is not None, "a series on this host"
    for number, run in enumerate(runs, start=1):
        with on_cores(run.ranks * cores):
            _train(run, f"[{number}/{len(runs)}] {run.folder.name}")
    report = SeriesReport([series.folder])
    report.write_html(series.folder / PAGE)
    report.write_lines(series.folder / LINES)
    report.show(console)
    say(f"report in {series.folder / PAGE} and {series.folder / LINES}")


def _train(run: PlannedRun, name: str) -> None:
    if (run.folder / WEIGHTS).exists():
        say(f"{name}: trained already")
        return
    arguments, how = list(run.arguments), ""
    if resumable(run.folder):
        arguments, how = ["--resume", str(run.folder), *code_options()], ", resumed"
    elif run.folder.exists():
        # It ended before its first checkpoint, or after its last: there is nothing to go on from.
        remove_run(run.folder)
    say(f"{name}: {run.ranks} rank{'s' if run.ranks > 1 else ''}, seed {run.seed}{how}")
    start = time.perf_counter()
    command = torchrun_command(run.ranks, TRAIN, arguments)
    train_logged(command, run.folder / LOG, torchrun_environment(run.ranks))
    say(f"{name}: done in {time.perf_counter() - start:.0f} s")
