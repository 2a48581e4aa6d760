"""`bigtrk scale`: plans a series, then trains and reports it here, or writes a SLURM script."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from bigtrk.console import console, say
from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError, number_of
from bigtrk.planning.command import read_ranks
from bigtrk.records.studies import SERIES, SeriesRecord
from bigtrk.reports.page import write_page
from bigtrk.reports.terminal import show
from bigtrk.shipped import TRAIN
from bigtrk.studies import launch
from bigtrk.studies.scaling.report import run_name, series_report
from bigtrk.training.data.event_source import open_events
from bigtrk.training.run_folder import WEIGHTS
from bigtrk.training.settings import Configuration, users_configuration

Kind = Literal["weak", "strong"]
STEP = "training.events_per_step"
# Settings that the series makes, and the way to choose them.
SET_HERE = {
    "data.train": "name the folders",
    "data.events": "use --events",
    "data.validation": "use --validation",
    "run.folder": "use --out",
}
SAME = ("kind", "events", "validation", "configuration", "cores_per_rank")
PAGE, LINES = "report.html", "report.jsonl"


class PlannedRun(NamedTuple):
    """A run to train on `ranks` ranks in `folder`, with the arguments of bigtrk/train.py."""

    folder: Path
    ranks: int
    seed: int
    arguments: list[str]


@dataclass(frozen=True)
class ScalingSeries:
    """A series. Weak: fixed events per rank, one per rank in a step. Strong: fixed in all."""

    folder: Path
    record: SeriesRecord
    given: tuple[str, ...]
    seed: int

    def arguments(self, ranks: int) -> list[str]:
        """Returns the arguments common to all runs on `ranks` ranks."""
        is_weak = self.record.kind == "weak"
        factor = ranks if is_weak else 1
        events, validation = factor * self.record.events, factor * self.record.validation
        own = [f"data.events={events}", f"data.validation={validation}"]
        return [*self.given, *own, *([f"{STEP}={ranks}"] if is_weak else [])]

    def runs(self) -> list[PlannedRun]:
        """Lists all runs, repeat by repeat, so that a drift of the machine is no scaling."""
        found = []
        for repeat in range(1, self.record.repeats + 1):
            for ranks in self.record.ranks:
                folder, seed = self.folder / run_name(ranks, repeat), self.seed + repeat - 1
                own = [f"training.seed={seed}", f"run.folder={folder}"]
                found.append(PlannedRun(folder, ranks, seed, [*self.arguments(ranks), *own]))
        return found

    def open(self) -> None:
        """Writes `series.json`; InputError if the folder holds another series. A series may be
        continued with more repeats, or with other ranks if each still has as many cores.
        """
        launch.open_study(self.folder / SERIES, self.record, SAME)


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
    """Plans a series from a command line: CONFIG.yaml, key.sub=value and data folders in any order.
    The ranks share `host_cores` of one host; None on a cluster. Raises InputError if an argument is
    bad or set by the series, ShaDow's steps would have to grow, or there are too few events.
    """
    worlds = read_ranks(ranks)
    taken = {**SET_HERE, **({STEP: "use --ranks"} if kind == "weak" else {})}
    path, overrides = launch.split_study("scale", arguments, default, taken)
    if kind == "strong" and not any(item.startswith(f"{STEP}=") for item in overrides):
        # All numbers of ranks take the same steps, each with an event for every rank.
        training = users_configuration(path, overrides).training
        overrides.append(f"{STEP}={max(training.events_per_step, *worlds)}")
    shared = [f"data.events={events}", f"data.validation={validation}"]
    configuration = users_configuration(path, [*overrides, *shared])
    if kind == "weak" and configuration.sampling.method == "shadow":
        raise InputError(
            "sampling.method=shadow: a step always trains one event, so it cannot grow with the "
            f"ranks; give 'strong' instead of 'weak', and {STEP}=1"
        )
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
    _check_events(record, configuration)
    given = [str(path)] if any(Path(item) == path for item in arguments) else []
    return ScalingSeries(folder, record, (*given, *overrides), configuration.training.seed)


def _check_events(record: SeriesRecord, configuration: Configuration) -> None:
    """Raises InputError if there are too few events, or less than one event or sector per rank."""
    sources = open_events(configuration.data.train)
    most = max(record.ranks)
    factor = most if record.kind == "weak" else 1
    needed = factor * (record.events + record.validation)
    if len(sources) < needed:
        each = f"{record.events} to train on + {record.validation} to validate"
        shown = f"{most} ranks x ({each})" if record.kind == "weak" else each
        folders = " ".join(map(str, configuration.data.train))
        raise InputError(
            f"{folders}: {record.kind} scaling needs {needed} events ({shown}), but there "
            f"are {len(sources)}; make more (bigtrk simulate events --events {needed}, then bigtrk "
            f"build events graphs), or lower --events{', --ranks' * (factor > 1)} or --validation"
        )
    shares = sum(source.parts for source in sources[: factor * record.events])
    if most > shares:
        raise InputError(
            f"--ranks {most}: is more than the {shares} events or sectors to train on, so some "
            "ranks would idle; lower it, raise --events, or cut events into sectors (python -m "
            "partition)"
        )


def run_series(series: ScalingSeries) -> None:
    """Trains the runs not yet trained, then reports, also as a page and JSON lines in its folder.
    Raises InputError if a training fails, or the folder holds another series.
    """
    series.open()
    runs = series.runs()
    # Ranks get equally many cores in all runs, as on a cluster; a single rank would take all.
    cores = series.record.cores_per_rank
    assert cores is not None, "a series on this host"
    for number, run in enumerate(runs, start=1):
        with launch.on_cores(run.ranks * cores):
            _train(run, f"[{number}/{len(runs)}] {run.folder.name}")
    document, lines = series_report([series.folder])
    write_page(document, series.folder / PAGE)
    write_atomically(series.folder / LINES, lambda path: path.write_text(lines))
    show(document, console)
    say(f"report in {series.folder / PAGE} and {series.folder / LINES}")


def _train(run: PlannedRun, name: str) -> None:
    if (run.folder / WEIGHTS).exists():
        say(f"{name}: trained already")
        return
    again = launch.resumption(run.folder)
    how = f"seed {run.seed}{', resumed' if again else ''}"
    say(f"{name}: {number_of(run.ranks, 'rank')}, {how}")
    start = time.perf_counter()
    command = launch.torchrun_command(run.ranks, TRAIN, again or run.arguments)
    launch.train_logged(command, run.folder / launch.LOG, launch.torchrun_environment(run.ranks))
    say(f"{name}: done in {time.perf_counter() - start:.0f} s")


def slurm_script(series: ScalingSeries) -> str:
    """Returns the text of `series.sh`, with a line per number of ranks; writes `series.json` for
    reports. Raises InputError if the folder holds another series, or a name would break a line.
    """
    for name in (str(series.folder), *series.arguments(1)):
        if not name.isprintable():
            raise InputError(f"--slurm: the name {name!r} has unprintable characters; change it")
    series.open()
    record, lines = series.record, []
    for ranks in record.ranks:
        most = record.ranks_per_node or ranks
        world = [record.repeats, series.seed, ranks, -(-ranks // most), min(ranks, most)]
        run = series.folder / run_name(ranks)
        lines.append(shlex.join(["array", *map(str, [*world, run, *series.arguments(ranks)])]))
    script = files("bigtrk.studies.scaling").joinpath("series.sh").read_text("utf-8")
    return "\n".join([script, *lines, ""])
