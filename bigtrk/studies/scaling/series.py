"""A folder of runs over rank counts, as `bigtrk scale` makes it."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from bigtrk.config import Count, parse
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.records.quantities import Number, Ranks
from bigtrk.records.run import Record
from bigtrk.records.run_folder import RUN, Run, read_run

SERIES = "series.json"
MOST_REPEATS = 1000
_NAME = re.compile(r"ranks(\d+)-(\d+)")


class SeriesRecord(Record):
    """`series.json`: what the series asks for.

    events, validation: per rank (weak) or in all (strong). configuration: that of all its runs, but
    for what differs by design. price_per_device_hour: in dollars. ranks_per_node: None for all
    ranks on one host. cores_per_rank: of the `host_cores` of one host; None on a cluster.
    """

    kind: Literal["weak", "strong"]
    ranks: Annotated[tuple[Ranks, ...], Field(max_length=4096)]
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)]
    events: Count
    validation: Count
    ranks_per_node: Ranks | None = None
    cores_per_rank: Ranks | None = None
    host_cores: Ranks | None = None
    price_per_device_hour: Number | None = None
    configuration: dict[str, Any] = Field(default_factory=dict)

    @property
    def shares(self) -> int:
        """For how many ranks the host has cores."""
        if self.cores_per_rank is None or self.host_cores is None:
            return 1
        return self.host_cores // self.cores_per_rank


@dataclass(frozen=True)
class Series:
    """The runs of a series that have finished an epoch, by number of ranks, ascending."""

    name: str
    record: SeriesRecord
    runs: dict[int, tuple[Run, ...]]
    notes: tuple[str, ...]

    @property
    def first(self) -> Run:
        """A run of the fewest ranks."""
        return next(iter(self.runs.values()))[0]


def run_name(ranks: int, repeat: int | None = None) -> str:
    """The folder of a series' run; repeats count from 1. Without one, what all repeats share."""
    return f"ranks{ranks:04d}" + ("" if repeat is None else f"-{repeat}")


def is_series(folder: Path) -> bool:
    return (folder / SERIES).is_file()


def read_record(folder: Path) -> SeriesRecord:
    """Raises:
    InputError: `series.json` is missing or holds something else.
    """
    path = folder / SERIES
    return parse(SeriesRecord, read_json(path), str(path))


def read_series(folder: Path) -> Series:
    """All runs of a series that are there.

    Raises:
        InputError: none has finished an epoch, or a record is broken.
    """
    record = read_record(folder)
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
    """What is missing."""
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
