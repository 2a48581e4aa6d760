"""`stall.json`: the ranks that keep others waiting, while they do, or that ended the run so."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bigtrk.disk.files import unlinked
from bigtrk.errors import InputError
from bigtrk.records.quantities import MOST
from bigtrk.records.record import FileRecord, read_record, write_record

STALL = "stall.json"
Rank = Annotated[int, Field(ge=0, lt=2**17)]
LONGEST = 10_000  # letters: each rank at fault is told with its place


class StallRecord(FileRecord):
    """The ranks at fault, and what the watchdog says of them and of the others. ends: it ended the
    run for that.
    """

    made_again: ClassVar[str] = "remove it"

    format: Literal[1] = 1
    ranks: Annotated[tuple[Rank, ...], Field(max_length=MOST)]
    text: Annotated[str, Field(max_length=LONGEST)]
    ends: bool = False


def write_stall(run: Path, ranks: tuple[int, ...], text: str, ends: bool) -> None:
    """Writes `stall.json` into a run's folder, atomically; of many ranks the first.

    Raises:
        OSError: the disk refuses.
        InputError: a symbolic link is there.
    """
    record = StallRecord(ranks=ranks[:MOST], text=text[:LONGEST], ends=ends)
    write_record(unlinked(run / STALL), record)


def clear_stall(run: Path) -> None:
    """Removes `stall.json`: the ranks go on.

    Raises:
        OSError: the disk refuses.
    """
    (run / STALL).unlink(missing_ok=True)


def read_stall(run: Path) -> StallRecord | None:
    """Reads `stall.json`; None where no rank keeps others waiting.

    Raises:
        InputError: the file is broken or incomplete.
    """
    try:
        return read_record(StallRecord, run / STALL) if (run / STALL).exists() else None
    except InputError:
        if not (run / STALL).exists():  # removed in this moment
            return None
        raise
