"""The runs of a scaling series: their arguments, and checks that they can train."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bigtrk.errors import InputError
from bigtrk.planning.command import read_ranks, split_arguments
from bigtrk.records.series import SeriesRecord, read_series_record, write_series_record
from bigtrk.studies.difference import first_difference
from bigtrk.studies.scaling.series import is_series, run_name
from bigtrk.training.data.event_source import open_events
from bigtrk.training.named_code import users_configuration
from bigtrk.training.settings import Configuration

Kind = Literal["weak", "strong"]
STEP = "training.events_per_step"
SEED = "training.seed"
# Settings that the series makes, and the way to choose them.
SET_HERE = {
    "data.train": "name the folders",
    "data.events": "use --events",
    "data.validation": "use --validation",
    "run.folder": "use --out",
}


@dataclass(frozen=True)
class PlannedRun:
    """A run of `ranks` ranks in `folder`, with the arguments that bigtrk/train.py gets."""

    folder: Path
    ranks: int
    seed: int
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class ScalingSeries:
    """A weak series trains and validates `events` and `validation` events per rank, one event per
    rank and step; a strong one the same events on every number of ranks, in the same steps.
    """

    folder: Path
    record: SeriesRecord
    given: tuple[str, ...]
    seed: int

    def arguments(self, ranks: int) -> list[str]:
        """Returns the arguments that all runs on `ranks` ranks have in common."""
        weak = self.record.kind == "weak"
        factor = ranks if weak else 1
        own = [
            f"data.events={factor * self.record.events}",
            f"data.validation={factor * self.record.validation}",
        ]
        return [*self.given, *own, *([f"{STEP}={ranks}"] if weak else [])]

    def runs(self) -> list[PlannedRun]:
        """Lists the runs repeat by repeat, so that a machine's drift does not look like scaling."""
        return [
            self._run(ranks, repeat)
            for repeat in range(1, self.record.repeats + 1)
            for ranks in self.record.ranks
        ]

    def _run(self, ranks: int, repeat: int) -> PlannedRun:
        folder, seed = self.folder / run_name(ranks, repeat), self.seed + repeat - 1
        own = (f"{SEED}={seed}", f"run.folder={folder}")
        return PlannedRun(folder, ranks, seed, (*self.arguments(ranks), *own))


def plan_series(
    kind: Kind,
    arguments: Sequence[str],
    default: Path,
    ranks: str,
    events: int,
    validation: int,
    repeats: int,
    folder: Path,
    ranks_per_node: int | None,
    host_cores: int | None,
) -> ScalingSeries:
    """Plans the series of a command line: CONFIG.yaml, key.sub=value and data folders in any order.
    The ranks share `host_cores` of one host; None on a cluster.

    Raises:
        InputError: an argument is bad or sets what the series sets, steps of ShaDow would have to
            grow, there are fewer events than asked for or than ranks, or `folder` holds another
            series.
    """
    path, overrides, folders = split_arguments(arguments, default)
    worlds = read_ranks(ranks)
    _refuse(kind, overrides)
    data = [f"data.train={json.dumps([str(folder) for folder in folders])}"] if folders else []
    configuration = users_configuration(path, [*overrides, *data])
    if kind == "strong" and not any(item.startswith(f"{STEP}=") for item in overrides):
        # All ranks take the same steps, and none of them may want for an event.
        step = max(configuration.training.events_per_step, *worlds)
        data.append(f"{STEP}={step}")
    shared = [f"data.events={events}", f"data.validation={validation}"]
    configuration = users_configuration(path, [*overrides, *data, *shared])
    record = SeriesRecord(
        kind=kind,
        ranks=tuple(worlds),
        repeats=repeats,
        events=events,
        validation=validation,
        ranks_per_node=ranks_per_node,
        cores_per_rank=None if host_cores is None else max(1, host_cores // max(worlds)),
        host_cores=host_cores,
        price_per_device_hour=configuration.run.price_per_device_hour,
        configuration=configuration.model_dump(mode="json", exclude={"run"}),
    )
    _check_steps(record, configuration)
    _check_events(record, configuration)
    given = [str(path)] if any(Path(item) == path for item in arguments) else []
    seed = configuration.training.seed
    return ScalingSeries(folder, record, (*given, *overrides, *data), seed)


def open_series(series: ScalingSeries) -> None:
    """Writes `series.json`, which runs and reports of the folder go by.

    Raises:
        InputError: the folder holds another series. More repeats continue one, and other ranks if
            each still has as many cores.
    """
    if is_series(series.folder):
        there = read_series_record(series.folder)
        for what in ("kind", "events", "validation", "configuration", "cores_per_rank"):
            old, new = getattr(there, what), getattr(series.record, what)
            if old != new:
                raise InputError(
                    f"{series.folder}: holds a series of another {what} "
                    f"({first_difference(old, new)}); choose another --out"
                )
    elif series.folder.exists() and any(series.folder.iterdir()):
        raise InputError(f"{series.folder}: holds something else; choose another --out")
    write_series_record(series.folder, series.record)


def _refuse(kind: Kind, overrides: Sequence[str]) -> None:
    taken = {**SET_HERE, **({STEP: "use --ranks"} if kind == "weak" else {})}
    for override in overrides:
        key = override.partition("=")[0]
        if key in taken:
            raise InputError(f"{override}: bigtrk scale sets {key}; {taken[key]}")


def _check_steps(record: SeriesRecord, configuration: Configuration) -> None:
    """Checks steps now: a run that cannot train would show only after those on fewer ranks."""
    if record.kind == "weak" and configuration.sampling.method == "shadow":
        raise InputError(
            f"sampling.method=shadow: its steps are of one event on any number of ranks; give "
            f"strong instead of weak, and {STEP}=1"
        )


def _check_events(record: SeriesRecord, configuration: Configuration) -> None:
    """Checks that there are events for the largest world, and that it asks for one per rank."""
    sources = open_events(configuration.data.train)
    most = max(record.ranks)
    factor = most if record.kind == "weak" else 1
    needed = factor * (record.events + record.validation)
    if len(sources) < needed:
        each = f"{record.events} to train on + {record.validation} to validate"
        shown = f"{most} ranks x ({each})" if record.kind == "weak" else each
        folders = " ".join(map(str, configuration.data.train))
        raise InputError(
            f"{folders}: {record.kind} scaling needs {needed} events ({shown}), there are "
            f"{len(sources)}; make more (bigtrk simulate events --events {needed}, then bigtrk "
            f"build events graphs), or lower --events, --validation or --ranks"
        )
    shares = sum(source.parts for source in sources[: factor * record.events])
    if most > shares:
        raise InputError(
            f"--ranks {most}: is more than the {shares} events, and sectors of events, to train "
            f"on; lower it, raise --events, or cut the events (python -m partition)"
        )
