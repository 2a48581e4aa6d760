"""A folder of runs over rank counts, as `bigtrk scale` makes it."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.records.run_folder import RUN, Run, read_run
from bigtrk.records.series import SERIES, SeriesRecord, read_series_record

_NAME = re.compile(r"ranks(\d+)-(\d+)")


@dataclass(frozen=True)
class Series:
    """The runs of a series that have finished an epoch, by number of ranks, ascending."""

    name: str
    record: SeriesRecord
    runs: dict[int, tuple[Run, ...]]
    notes: tuple[str, ...]

    @property
    def first(self) -> Run:
        """Returns a run of the fewest ranks."""
        return next(iter(self.runs.values()))[0]


def run_name(ranks: int, repeat: int | None = None) -> str:
    """Names a run's folder; repeats count from 1. Without one, it is what all repeats share."""
    return f"ranks{ranks:04d}" + ("" if repeat is None else f"-{repeat}")


def is_series(folder: Path) -> bool:
    return (folder / SERIES).is_file()


def read_series(folder: Path) -> Series:
    """Reads all runs of a series that are there.

    Raises:
        InputError: none has finished an epoch, or a record is broken.
    """
    record = read_series_record(folder)
    found = [read_run(path) for path in _run_folders(folder)]
    by_ranks: dict[int, list[Run]] = defaultdict(list)
    for run in found:
        if run.epochs:
            by_ranks[run.record.world_size].append(run)
    if not by_ranks:
        raise InputError(f"{folder}: no run of the series has finished an epoch yet")
    runs = {ranks: tuple(by_ranks[ranks]) for ranks in sorted(by_ranks)}
    return Series(folder.resolve().name, record, runs, tuple(_notes(record, found)))


def _run_folders(folder: Path) -> list[Path]:
    paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(path for path in paths if (path / RUN).exists())


def _notes(record: SeriesRecord, found: list[Run]) -> Iterator[str]:
    """Says what is missing."""
    training = record.configuration.get("training")
    epochs = training.get("epochs") if isinstance(training, dict) else None
    for run in found:
        if isinstance(epochs, int) and len(run.epochs) < epochs:
            yield f"{run.folder.name} has {len(run.epochs)} of {epochs} epochs."
    names = {run.folder.name for run in found}
    wanted = [run_name(n, repeat + 1) for n in record.ranks for repeat in range(record.repeats)]
    missing = [name for name in wanted if name not in names]
    if missing:
        yield f"Not there yet: {', '.join(missing)}."
