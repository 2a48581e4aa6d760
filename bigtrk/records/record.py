"""Records: JSON files written and read by one class, with finite sums and ratios of values."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, ConfigDict, Field

from bigtrk.config import Settings, parse
from bigtrk.disk.files import read_json, write_json
from bigtrk.errors import InputError, one_line

LARGEST, SMALLEST = 1e40, 1e-30  # losses that diverge are as large as float32 goes
MOST = 1000  # bins, parts of a model, packages: each becomes a row of a table


def _moderate(value: float) -> float:
    if abs(value) > LARGEST:
        raise ValueError(f"must be from {-LARGEST:g} to {LARGEST:g}")
    return value


def _not_tiny(value: float) -> float:
    if 0 < value < SMALLEST:
        raise ValueError(f"must not be between 0 and {SMALLEST:g}")
    return value


Loss = Annotated[float, Field(allow_inf_nan=True), AfterValidator(_moderate)]  # NaN: it diverged
Number = Annotated[float, AfterValidator(_moderate)]
# Of a bin: axes show its logarithm.
Bound = Annotated[float, AfterValidator(_moderate), AfterValidator(_not_tiny)]
Ratio = Annotated[float, Field(ge=0, le=1)]
# Seconds, or edges per second: divisors, so not tiny.
Measure = Annotated[float, Field(ge=0, le=1e30), AfterValidator(_not_tiny)]
Place = Annotated[int, Field(ge=0, lt=2**40, strict=True)]  # of a step or an epoch
Parts = Annotated[int, Field(ge=1, le=4096)]  # sectors of an event
Ranks = Annotated[int, Field(ge=1, le=2**17)]  # a number of them, or of cores
Text = Annotated[str, Field(max_length=1000)]
PathText = Annotated[str, Field(max_length=4096)]  # Linux's longest path


def some() -> Any:
    """Returns the field of a dictionary, empty by default and limited in size."""
    return Field(default_factory=dict, max_length=MOST)


class Record(Settings):
    """An immutable record; unlike settings it ignores unknown keys."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class FileRecord(Record):
    """A record with a file of its own. made_again: how a user makes the file again. format: a
    number with a default for each kind, which grows when the meaning of a key changes.
    """

    made_again: ClassVar[str]

    format: int


Kind = TypeVar("Kind", bound=FileRecord)


def write_record(path: Path, record: FileRecord | None) -> None:
    """Writes a record to `path`, atomically; removes the file if `record` is None."""
    if record is None:
        path.unlink(missing_ok=True)
    else:
        write_json(path, record.model_dump(mode="json"))


def read_record(kind: type[Kind], path: Path) -> Kind:
    """Reads the record in the file `path`. Raises InputError, which names file, key and remedy, if
    the file is missing, has another format, or has values that no such record can have.
    """
    content, known = read_json(path), kind.model_fields["format"].default
    found = content.get("format") if isinstance(content, dict) else known
    if type(found) is not int or found != known:
        remedy = f"{kind.made_again}, or use the version of bigtrk that wrote it"
        if type(found) is int and found > known:
            remedy = "update bigtrk"
        told = f"format {one_line(repr(found))}"
        if "format" not in content:
            told = "no format number (an older version wrote it)"
        raise InputError(f"{path}: has {told}, but this bigtrk reads format {known}; {remedy}")
    return parse(kind, content, str(path), remedy=kind.made_again)


def read_if_any(kind: type[Kind], path: Path) -> Kind | None:
    """Reads a record like `read_record`; None if the file is missing, or removed meanwhile."""
    try:
        return read_record(kind, path) if path.exists() else None
    except InputError:
        if path.exists():
            raise
        return None
