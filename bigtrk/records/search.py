"""`search.json`: the request of a search, which all that continues it must ask for, too."""

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from bigtrk.records.record import FileRecord, read_record

SEARCH = "search.json"
Storage = Literal["sqlite", "journal"]


class SearchRecord(FileRecord):
    """`search.json`. space: the settings searched, as their file has them. configuration: that of
    all trials, without these. storage: the kind of the file that holds the study.
    """

    made_again: ClassVar[str] = "search in another folder"

    format: Literal[1] = 1
    metric: str
    minimises: bool
    sampler: Literal["tpe", "random"]
    pruning: dict[str, int] | None
    seed: int
    storage: Storage
    space: dict[str, Any] = Field(default_factory=dict)
    configuration: dict[str, Any] = Field(default_factory=dict)


def read_search_record(folder: Path) -> SearchRecord:
    """Reads `search.json`.

    Raises:
        InputError: it is missing, of another format, or says what no search can.
    """
    return read_record(SearchRecord, folder / SEARCH)
