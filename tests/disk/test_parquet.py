"""Columns of integers from parquet files of anybody's."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigtrk.disk.parquet import IntegerGroups, read_integers, values_of_groups
from bigtrk.errors import InputError


def read(path: Path, table: pa.Table) -> dict[str, list[int]]:
    pq.write_table(table, path)
    columns = read_integers(path, ["a", "b"], optional=["c"])
    assert all(column.dtype == np.int64 for column in columns.values())
    return {name: column.tolist() for name, column in columns.items()}


def test_every_kind_of_integer_and_no_other_column(tmp_path: Path) -> None:
    a, b = pa.array([2**63 - 1], pa.uint64()), pa.array([-7], pa.int8())
    found = read(tmp_path / "x", pa.table({"z": ["text"], "b": b, "a": a}))
    assert found == {"a": [2**63 - 1], "b": [-7]}
    assert read(tmp_path / "x", pa.table({"a": a, "b": b, "c": b}))["c"] == [-7]
    none = pa.array([], pa.int64())
    assert read(tmp_path / "x", pa.table({"a": none, "b": none})) == {"a": [], "b": []}


GOOD = pa.array([1, 2])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"b": pa.array([1.0, 2.5])}, "column b holds double, not integers; write it as int64"),
        ({"b": pa.array([[1], [2]])}, "column b holds list<"),
        ({"b": pa.array([1, None])}, "row 2: b is blank; write a whole number"),
        ({"b": pa.array([1, 2**63], pa.uint64())}, "row 2: b is 9223372036854775808, too large"),
        ({}, "missing column b; rename or add columns so that it has a, b"),
        ({"b": GOOD, "twice": GOOD}, "column b appears twice; remove one"),
    ],
)
def test_columns_that_are_no_integers_are_named(
    tmp_path: Path, table: dict[str, pa.Array], message: str
) -> None:
    names = ["a", *table] if "twice" not in table else ["a", "b", "b"]
    with pytest.raises(InputError, match=f"{tmp_path / 'x'}.*{message}"):
        read(tmp_path / "x", pa.table([GOOD, *table.values()], names=names))


@pytest.mark.parametrize("content", [b"", b"PAR1" * 100])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match=r"x: is not a readable Parquet file .*; write it again"):
        read_integers(tmp_path / "x", ["a"], optional=[])


def test_more_rows_than_a_file_of_its_size_holds_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, same = tmp_path / "x", pa.array(np.zeros(1_000_000, np.int64))
    pq.write_table(pa.table({"a": same}), path, row_group_size=100_000)
    assert len(read_integers(path, ["a"], [])["a"]) == 1_000_000
    assert path.stat().st_size < 10_000
    monkeypatch.setattr("bigtrk.disk.unpacking.FREE_BYTES", 1 << 20)
    assert len(IntegerGroups(path, ["a"], []).first_row) == 11
    with pytest.raises(InputError, match="claims 1,000,000 rows, too many for"):
        read_integers(path, ["a"], [])
    pq.write_table(pa.table({"a": same}), path)
    with pytest.raises(InputError, match="claims 1,000,000 rows, too many for"):
        IntegerGroups(path, ["a"], [])


def test_groups_are_read_one_by_one_and_none_is_minus_one(tmp_path: Path) -> None:
    path, last = tmp_path / "x", pa.array([0, 0, 0, 0, 2**64 - 1], pa.uint64())
    pq.write_table(pa.table({"a": last, "b": last}), path, row_group_size=2)
    groups = IntegerGroups(path, ["a", "b"], optional=["c"], or_none=["a"])
    assert groups.first_row.tolist() == [0, 2, 4, 5]
    assert {name: column.tolist() for name, column in groups.read(1).items()} == {
        "a": [0, 0],
        "b": [0, 0],
    }
    assert groups.read(2, ["a"])["a"].tolist() == [-1]
    with pytest.raises(InputError, match="row 5: b is 18446744073709551615, too large"):
        groups.read(2)


def counted(path: Path) -> list[int]:
    with path.open("rb") as file:
        return values_of_groups(file)


@pytest.mark.parametrize(
    ("rows", "options"), [(0, {}), (7, {"version": "1.0"}), (40, {"use_dictionary": False})]
)
def test_the_counts_are_those_of_arrow(tmp_path: Path, rows: int, options: dict[str, Any]) -> None:
    """Lists of more than 14 row groups or columns have a longer header."""
    values = range(rows)
    columns = {f"c{n}": pa.array(values, pa.int64()) for n in range(20)}
    columns["list"] = pa.array([[n] * n for n in values], pa.list_(pa.float32()))
    columns["flag"] = pa.array([n % 2 == 0 for n in values], pa.bool_())
    columns["text"] = pa.array(["x" * n for n in values], pa.string())
    table = pa.table(columns, metadata={"any": "text" * 100})
    pq.write_table(table, tmp_path / "x", row_group_size=2, write_page_index=True, **options)
    meta = pq.read_metadata(tmp_path / "x")
    groups = [meta.row_group(n) for n in range(meta.num_row_groups)]
    assert counted(tmp_path / "x") == [
        sum(group.column(n).num_values for n in range(group.num_columns)) for group in groups
    ]


def footer(content: bytes) -> bytes:
    return content + len(content).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
        footer(b"\x1c" * 5000),  # nests
        footer(b"\x19\xfc" + b"\xff" * 9 + b"\x01"),  # lists
        footer(b"\x1f\x00"),  # a type that there is not
        footer(b"\x00"),  # names no row groups
    ],
)
def test_a_damaged_footer_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="footer"):
        counted(tmp_path / "x")
