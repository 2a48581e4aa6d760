"""The number of values that a Parquet file says it holds, which is known before any is unpacked.

Arrow's own metadata of a column ends the process where a damaged footer has a wrong histogram, so
that the footer is read here. Source: parquet.thrift and the compact protocol of Apache Thrift.
"""

from typing import Any, BinaryIO

MAGIC = b"PAR1"
TAIL_BYTES = 8  # the footer's length, and the magic
# Places in the structures FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
ROW_GROUPS, COLUMNS, META_DATA, NUM_VALUES = 4, 1, 3, 5
TRUE, FALSE, BYTE, INTEGERS, DOUBLE, BINARY, LISTS, STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12


def values_of_groups(file: BinaryIO) -> list[int]:
    """Returns the number of values of each row group, of all of its columns.

    Raises:
        ValueError: the file has no footer, or it is damaged.
    """
    size = file.seek(0, 2)
    file.seek(max(size - TAIL_BYTES, 0))
    tail = file.read()
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - TAIL_BYTES:
        raise ValueError("it does not end in a footer")
    file.seek(size - TAIL_BYTES - length)
    try:
        footer = _Compact(file.read(length)).structure()
        return [
            sum(_natural(chunk[META_DATA][NUM_VALUES]) for chunk in group[COLUMNS])
            for group in footer[ROW_GROUPS]
        ]
    except (IndexError, KeyError, TypeError, RecursionError):
        raise ValueError("its footer is damaged") from None


def _natural(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError
    return value


class _Compact:
    """Values of the compact protocol, one after another; of text the place is passed over.

    Raises:
        IndexError: the content ends within a value.
        TypeError: a type is none of the protocol's.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def structure(self) -> dict[int, Any]:
        """Reads fields by their ids, to the stop byte."""
        found: dict[int, Any] = {}
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else self._integer()
            found[field] = self._value(header & 15)
        return found

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in INTEGERS:
            return self._integer()
        if kind in LISTS:
            return self._list()
        if kind == STRUCT:
            return self.structure()
        self._pass_over(kind)
        return None

    def _pass_over(self, kind: int) -> None:
        lengths = {BYTE: 1, DOUBLE: 8}
        if kind not in (*lengths, BINARY):
            raise TypeError
        length = self._varint() if kind == BINARY else lengths[kind]
        self._at += length

    def _list(self) -> list[Any]:
        header = self._byte()
        size = header >> 4 if header >> 4 < 15 else self._varint()
        # Truth values have a byte each in lists.
        kind = BYTE if header & 15 in (TRUE, FALSE) else header & 15
        return [self._value(kind) for _ in range(size)]
