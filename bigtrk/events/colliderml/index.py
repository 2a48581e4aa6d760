"""The events of Parquet files with a row per event: where each is, in files that can be read."""

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from bigtrk.disk.parquet_footer import values_of_groups
from bigtrk.disk.unpacking import FREE_BYTES, MAX_RATIO
from bigtrk.errors import InputError, one_line
from bigtrk.events.colliderml.layout import EVENT_ID, FLAGS, StoredFile
from bigtrk.events.colliderml.rows import Place, damage_told
from bigtrk.events.columns import TableSpec

WIDEST = 8  # bytes of a value
# The number in an event's name has at most 18 digits, by which tracks tell events.
LAST_EVENT = 10**18 - 1


@lru_cache(maxsize=8)
def find_rows(files: tuple[StoredFile, ...], spec: TableSpec) -> dict[int, Place]:
    """Finds the place of each event in the files of one table, ascending by event.

    Only schemas, sizes and ids of events are read.

    Raises:
        InputError: a file is damaged, lacks a column or has one of another type, or two rows are of
            one event.
    """
    places: dict[int, Place] = {}
    for file in files:
        for event, place in _rows_of(file, spec):
            other = places.setdefault(event, place)
            if other is not place:
                raise InputError(
                    f"{place.where(event)}: event_id {event} is also that of {other.file.path}, "
                    f"row {other.number + 1}; remove one of them or, if they are of different "
                    "samples, name one, such as FOLDER/ttbar_pu200"
                )
    return dict(sorted(places.items()))


def _rows_of(file: StoredFile, spec: TableSpec) -> Iterator[tuple[int, Place]]:
    with damage_told(file), file.path.open("rb") as handle:
        _check_values(values_of_groups(handle), file)
        opened = pq.ParquetFile(file.path)
        columns = _present(opened.schema_arrow, spec, file)
        column = opened.read([EVENT_ID], use_threads=False).column(EVENT_ID)
        groups = [opened.metadata.row_group(g) for g in range(opened.metadata.num_row_groups)]
    if (told := sum(group.num_rows for group in groups)) != len(column):
        raise InputError(
            f"{file.path}: its row groups are of {told:,} rows, and it holds {len(column):,}; it "
            "is damaged: fetch it again"
        )
    number = 0
    events = _event_ids(column, file)
    for group, found in enumerate(groups):
        size = found.total_byte_size // max(found.num_rows, 1)
        for row in range(found.num_rows):
            yield events[number], Place(file, columns, group, row, number, size)
            number += 1


def _check_values(groups: list[int], file: StoredFile) -> None:
    """Refuses row groups of more values than their file's bytes should unpack to, since a few bytes
    can stand for any number of equal values.
    """
    most = max(groups, default=0)
    if most * WIDEST > max(FREE_BYTES, MAX_RATIO * file.size):
        raise InputError(
            f"{file.path}: says that it holds {most:,} values, more than {file.size:,} bytes "
            "should unpack to; write it again without compression and dictionaries"
        )


def _present(schema: pa.Schema, spec: TableSpec, file: StoredFile) -> tuple[str, ...]:
    """Lists the columns of `spec` that a table has, all of the types that it needs."""
    required = (EVENT_ID, *spec.required)
    if missing := [name for name in required if name not in schema.names]:
        raise InputError(
            f"{file.path}: missing column {', '.join(missing)}; ColliderML's {spec.stems[0]} need "
            f"{', '.join(required)}, as of its Release 1: fetch the file again, or rename its "
            f"columns"
        )
    ids = (*spec.ids, *spec.optional_ids)
    wanted = (*required, *spec.optional_ids, *spec.optional_floats)
    present = [name for name in wanted if name in schema.names]
    for name in present:
        if schema.names.count(name) > 1:
            raise InputError(f"{file.path}: column {name} appears twice; remove one of the two")
        if not _fits(kind := schema.field(name).type, name, name in ids):
            raise InputError(
                f"{file.path}: column {name} holds {one_line(str(kind))}, not "
                f"{_wanted(name, name in ids)}; convert it"
            )
    return tuple(name for name in present if name != EVENT_ID)


def _fits(kind: pa.DataType, name: str, is_id: bool) -> bool:
    if name == EVENT_ID:
        return bool(pa.types.is_integer(kind))
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    if name in FLAGS and pa.types.is_boolean(kind.value_type):
        return True
    if is_id:
        return bool(pa.types.is_integer(kind.value_type))
    return bool(pa.types.is_float32(kind.value_type) or pa.types.is_float64(kind.value_type))


def _wanted(name: str, is_id: bool) -> str:
    if name == EVENT_ID:
        return "one integer per row"
    return f"a list of {'integers' if is_id else 'float32 or float64'} per row"


def _event_ids(column: pa.ChunkedArray, file: StoredFile) -> list[int]:
    events: list[int | None] = column.to_pylist()
    for number, event in enumerate(events):
        if event is None or not 0 <= event <= LAST_EVENT:
            raise InputError(
                f"{file.path}, row {number + 1}: event_id is {event}, not a number from 0 to "
                f"{LAST_EVENT}; number the events"
            )
    return [event for event in events if event is not None]
