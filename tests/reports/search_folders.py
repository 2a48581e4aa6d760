"""Small folders of searches, of records as searchers and trainings build them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigtrk.records.metrics import MeanEdgeMetrics, MetricsRecord
from bigtrk.records.record import write_record
from bigtrk.records.studies import (
    RESULT,
    SEARCH,
    ResultRecord,
    RoundRecord,
    SearchRecord,
    TrialRecord,
    trial_name,
)
from tests.reports.run_folders import epoch_record, run_record, run_writer, step_record

LR, SCHEDULE, HIDDEN = "optimizer.lr", "optimizer.schedule", "model.hidden"
SPACE = {
    LR: {"low": 1e-4, "high": 1e-1, "log": True, "step": None},
    HIDDEN: {"low": 8, "high": 32, "log": False, "step": 8},
    SCHEDULE: ["constant", "cosine"],
}


def search_record(**changes: Any) -> SearchRecord:
    """The request of a search for the largest AUC."""
    content: dict[str, Any] = {
        "metric": "auc",
        "minimises": False,
        "sampler": "tpe",
        "pruning": {"first": 1, "factor": 3},
        "seed": 7,
        "space": SPACE,
        "given": ("/data/my config.yaml", "training.epochs=4"),
        "configuration": {
            "model": {"name": "interaction", "hidden": 64, "layers": 2},
            "training": {"epochs": 4},
        },
    }
    return SearchRecord(**{**content, **changes})


def trial_record(number: int, value: float | None, **changes: Any) -> TrialRecord:
    """A trial that has ended, unless the changes say something else."""
    settings = {
        LR: 10.0 ** (-4 + number / 2),
        HIDDEN: 8 + 8 * (number % 4),
        SCHEDULE: ("constant", "cosine")[number % 2],
    }
    content: dict[str, Any] = {
        "number": number,
        "state": "complete",
        "value": value,
        "epochs": 4,
        "settings": settings,
    }
    return TrialRecord(**{**content, **changes})


def round_record(number: int, trial: int, value: float | None, **changes: Any) -> RoundRecord:
    """A round of one epoch, by which a trial went on from its own checkpoint."""
    content: dict[str, Any] = {
        "round": number,
        "trial": trial,
        "value": value,
        "settings": {LR: 0.01 * (1 + trial)},
        "epochs": number + 1,
    }
    return RoundRecord(**{**content, **changes})


def write_trial(folder: Path, number: int, aucs: Sequence[float]) -> Path:
    """Writes the run folder of a trial with these AUCs by epoch, and steps between them."""
    lines: list[MetricsRecord] = []
    for epoch, auc in enumerate(aucs):
        metrics = MeanEdgeMetrics(auc=auc, efficiency=0.9, n_target=400)
        lines += [step_record(epoch), epoch_record(epoch, 2.0, validation=metrics)]
    config = {"model": {"name": "interaction"}, "data": {"train": ["graphs"]}}
    return run_writer(folder)(trial_name(number), run_record(config=config), lines)


def write_search(
    folder: Path,
    record: SearchRecord,
    trials: Sequence[TrialRecord] = (),
    rounds: Sequence[RoundRecord] = (),
) -> Path:
    """Writes the records of a search."""
    folder.mkdir(parents=True, exist_ok=True)
    write_record(folder / SEARCH, record)
    if trials:
        result = ResultRecord(metric=record.metric, trials=tuple(trials), rounds=tuple(rounds))
        write_record(folder / RESULT, result)
    return folder


# Of five trials: two complete, one pruned, one failed, one not ended.
CURVES = {0: [0.5, 0.7, 0.6, 0.65], 1: [0.6, 0.8, 0.9, 0.85], 2: [0.4], 3: [], 4: [0.7, 0.95]}


def small_search(folder: Path, **changes: Any) -> Path:
    """Writes a search of five trials, of which one still trains or waits."""
    for number, aucs in CURVES.items():
        if aucs:
            write_trial(folder, number, aucs)
    trials = (
        trial_record(1, 0.9),
        trial_record(0, 0.7),
        trial_record(2, 0.4, state="pruned", epochs=1),
        trial_record(3, None, state="failed", epochs=0, reason="CUDA <b>out</b> of memory"),
        trial_record(4, None, state="running", epochs=0),
    )
    return write_search(folder, search_record(**changes), trials)


def small_population(folder: Path) -> Path:
    """Writes a population of three trials and three rounds: after the second round trial 2 goes on
    from trial 0, and its weights come to be the best.
    """
    values = {0: (0.6, 0.7, 0.75), 1: (0.5, 0.6, 0.65), 2: (0.4, 0.45, 0.9)}
    for number, own in values.items():
        write_trial(folder, number, own)
    copied = {"source": 0, "source_round": 1, "settings": {LR: 0.0125}}
    rounds = [
        round_record(number, trial, own[number], **(copied if (number, trial) == (2, 2) else {}))
        for trial, own in values.items()
        for number in range(3)
    ]
    trials = [
        trial_record(trial, own[-1], epochs=3, settings={LR: 0.0125 if trial == 2 else 0.01})
        for trial, own in values.items()
    ]
    population = {"every": 1, "part": 0.25, "factor": 1.25, "redrawn": 0.25, "trials": 3}
    record = search_record(pruning=None, population=population, space={LR: SPACE[LR]})
    return write_search(folder, record, trials, rounds)
