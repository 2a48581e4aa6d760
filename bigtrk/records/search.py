"""`search.json`: the request of a search, which all that continues it must ask for, too."""

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from bigtrk.config import Count
from bigtrk.records.record import FileRecord, read_record

SEARCH = "search.json"
Storage = Literal["sqlite", "journal"]


class SearchRecord(FileRecord):
    """`search.json`. space: the settings searched, as their file has them. configuration: that of
    all trials, without these. storage: the kind of the file that holds the study. population: how
    it is trained, and its number of `trials`, if the search is that of a population.
    """

    made_again: ClassVar[str] = "search in another folder"

    format: Literal[1] = 1
    metric: str
    minimises: bool
    sampler: Literal["tpe", "random"]
    pruning: dict[str, int] | None
    seed: int
    storage: Storage
    population: dict[str, float] | None = None
    space: dict[str, Any] = Field(default_factory=dict)
    configuration: dict[str, Any] = Field(default_factory=dict)


def read_search_record(folder: Path) -> SearchRecord:
    """Reads `search.json`.

    Raises:
        InputError: it is missing, of another format, or says what no search can.
    """
    return read_record(SearchRecord, folder / SEARCH)


DECISION, VALUE = "decision.json", "value.json"


class DecisionRecord(FileRecord):
    """What a trial of a population trains in a round: from the checkpoint of the trial `source`
    after its round `source_round`, or its own where they are None, with `settings`, until it has
    trained so many `epochs`.
    """

    made_again: ClassVar[str] = "search in another folder"

    format: Literal[1] = 1
    source: Count | None = None
    source_round: Count | None = None
    settings: dict[str, Any]
    epochs: Count


class ValueRecord(FileRecord):
    """The metric of a trial of a population after a round; None: it failed, for a `reason`."""

    made_again: ClassVar[str] = "search in another folder"

    format: Literal[1] = 1
    value: float | None
    reason: str = ""
