"""`series.json`: the request of a scaling series."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bigtrk.config import Count
from bigtrk.records.record import FileRecord, Number, Ranks, read_record, write_record

SERIES = "series.json"
MOST_REPEATS = 1000


class SeriesRecord(FileRecord):
    """`series.json`: the request of the series.

    events, validation: per rank (weak) or in all (strong). configuration: that of all its runs, but
    for what differs by design. price_per_device_hour: in dollars. ranks_per_node: None for all
    ranks on one host. cores_per_rank: of the `host_cores` of one host; None on a cluster.
    """

    made_again: ClassVar[str] = "run the series again in another folder"

    format: Literal[1] = 1
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
        """Counts the ranks that the host has cores for."""
        if self.cores_per_rank is None or self.host_cores is None:
            return 1
        return self.host_cores // self.cores_per_rank


def write_series_record(folder: Path, record: SeriesRecord) -> None:
    """Writes `series.json`, atomically."""
    write_record(folder / SERIES, record)


def is_series(folder: Path) -> bool:
    return (folder / SERIES).is_file()


def read_series_record(folder: Path) -> SeriesRecord:
    """Reads `series.json`; raises InputError as `read_record`."""
    return read_record(SeriesRecord, folder / SERIES)
