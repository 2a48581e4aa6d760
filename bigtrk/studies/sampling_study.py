"""Whole events, ShaDow, sectors and wedges, trained for the same time and compared."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bigtrk.config import load_settings
from bigtrk.console import console, say
from bigtrk.errors import InputError
from bigtrk.graphs.storage.manifest import read_manifest
from bigtrk.planning.command import split_arguments
from bigtrk.records.run_folder import read_run
from bigtrk.reports.study import StudyReport
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import torchrun_command, torchrun_environment, train_logged
from bigtrk.studies.scaling.run_series import LOG
from bigtrk.training.data.event_source import open_events
from bigtrk.training.run_folder import WEIGHTS, remove_run
from bigtrk.training.settings import Configuration

PAGE, RESULT = "report.html", "study.json"
SET_HERE = (
    "data.train",
    "data.sectors",
    "run.folder",
    "sampling.method",
    "training.epochs",
    "training.minutes",
    "training.validate_minutes",
)
# Name, kind of data folder, overrides.
METHODS = (
    ("full graph", "graphs", ()),
    ("ShaDow", "graphs", ("sampling.method=shadow",)),
    ("naive sectors", "sectors", ("sampling.method=sectors", "data.sectors=naive")),
    ("sectors with halo", "sectors", ("sampling.method=sectors", "data.sectors=halo")),
    ("wedges", "graphs", ("sampling.method=wedges",)),
)
POINTS = 12  # validations in a run
ENDLESS = 100_000  # epochs: the time limit ends a run


@dataclass(frozen=True)
class SamplingStudy:
    """Runs of `minutes` each in `folder`, configured by `settings` (YAML) and `overrides`; `data`:
    a folder of graphs and one of their sectors.
    """

    folder: Path
    settings: Path
    overrides: tuple[str, ...]
    data: dict[str, Path]
    minutes: float
    ranks: int

    def run(self) -> None:
        """Trains what is not trained yet, then reports.

        Raises:
            InputError: a training failed, or the folder holds runs of other settings.
        """
        for number, (name, kind, own) in enumerate(METHODS, start=1):
            self._train(f"[{number}/{len(METHODS)}] {name}", self._run_folder(name), kind, own)
        report = StudyReport({name: self._run_folder(name) for name, _, _ in METHODS})
        report.write(self.folder / PAGE, self.folder / RESULT)
        report.show(console)
        say(f"report in {self.folder / PAGE} and {self.folder / RESULT}")

    def _run_folder(self, name: str) -> Path:
        return self.folder / name.replace(" ", "-")

    def _train(self, shown: str, run: Path, kind: str, own: Sequence[str]) -> None:
        overrides = [
            *self.overrides,
            f"data.train={json.dumps([str(self.data[kind])])}",
            f"training.minutes={self.minutes}",
            f"training.epochs={ENDLESS}",
            f"training.validate_minutes={self.minutes / POINTS}",
            f"run.folder={run}",
            *own,
        ]
        wanted = load_settings(Configuration, self.settings, overrides)
        if (run / WEIGHTS).exists():
            if read_run(run).record.config != wanted.model_dump(mode="json"):
                raise InputError(f"{run}: is of other settings or minutes; choose another --out")
            say(f"{shown}: trained already")
            return
        if run.exists():
            remove_run(run)
        say(f"{shown}: {self.minutes:g} minutes of training")
        arguments = [str(self.settings), *overrides]
        command = torchrun_command(self.ranks, TRAIN, arguments)
        train_logged(command, run / LOG, torchrun_environment(self.ranks))


def plan_study(
    arguments: Sequence[str], default: Path, folder: Path, minutes: float, ranks: int
) -> SamplingStudy:
    """Makes the study of a command line: CONFIG.yaml, key.sub=value, and two data folders.

    Raises:
        InputError: an argument is bad, or there is not one folder of graphs and one of sectors of
            them.
    """
    path, overrides, folders = split_arguments(arguments, default)
    for override in overrides:
        if override.partition("=")[0] in SET_HERE:
            raise InputError(f"{override}: bigtrk study sets it; leave it out")
    chosen = load_settings(Configuration, path, [*overrides, f"training.minutes={minutes}"])
    if chosen.data.validation == 0:
        raise InputError("data.validation=0: bigtrk study compares validation; hold back events")
    data = {read_manifest(given)[0]: given for given in folders}
    if sorted(data) != ["graphs", "sectors"] or len(folders) != 2:
        raise InputError(
            "bigtrk study needs two data folders: graphs (bigtrk build) and their sectors "
            "(python -m partition GRAPHS SECTORS --parts 8)"
        )
    names = [[source.name for source in open_events([data[kind]])] for kind in data]
    if names[0] != names[1]:
        raise InputError(f"{folders[0]} and {folders[1]} hold different events; cut all of them")
    return SamplingStudy(folder, path, tuple(overrides), data, minutes, ranks)
