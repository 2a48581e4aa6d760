"""The definition of a record; files that hold one are written and read through the same class."""

from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict

from bigtrk.config import Settings, parse
from bigtrk.disk.files import read_json, write_json
from bigtrk.errors import InputError, one_line


class Record(Settings):
    """An immutable record; unlike a configuration it tolerates keys that it does not know."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class FileRecord(Record):
    """A record that has a file of its own, and says of which format that is.

    made_again: the way in which a user makes the file anew. format: a number that each kind has by
    default, and that grows when the meaning of its keys changes; files of versions before formats
    have none.
    """

    made_again: ClassVar[str]

    format: int


Kind = TypeVar("Kind", bound=FileRecord)


def write_record(path: Path, record: FileRecord) -> None:
    """Writes a record, atomically.

    Raises:
        OSError: the disk refuses.
    """
    write_json(path, record.model_dump(mode="json"))


def read_record(kind: type[Kind], path: Path) -> Kind:
    """Reads the record that `path` holds.

    Raises:
        InputError: the file is missing, is of another format, or says what no such record can;
            the message names it, the key and the remedy.
    """
    content = read_json(path)
    if isinstance(content, dict):
        _check_format(content, path, kind)
    try:
        return parse(kind, content, str(path))
    except InputError as error:
        raise InputError(f"{error}; {kind.made_again}") from None


def _check_format(content: dict[str, Any], path: Path, kind: type[FileRecord]) -> None:
    found, known = content.get("format"), kind.model_fields["format"].default
    if type(found) is int and found == known:
        return
    told = (
        f"format {one_line(repr(found))}"
        if "format" in content
        else "no format, as older versions wrote it"
    )
    remedy = f"{kind.made_again}, or use the version of bigtrk that wrote it"
    if type(found) is int and found > known:
        remedy = "update bigtrk"
    raise InputError(f"{path}: has {told}; this bigtrk reads format {known}: {remedy}")
