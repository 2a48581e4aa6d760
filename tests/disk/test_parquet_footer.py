"""The counts of values in a Parquet file's footer, against Arrow's."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigtrk.disk.parquet import values_of_groups


def counted(path: Path) -> list[int]:
    with path.open("rb") as file:
        return values_of_groups(file)


@pytest.mark.parametrize("options", [{}, {"version": "1.0"}, {"use_dictionary": False}])
@pytest.mark.parametrize("rows", [0, 1, 7, 40])
def test_the_counts_are_those_of_arrow(tmp_path: Path, rows: int, options: dict[str, Any]) -> None:
    """Also of more than 14 row groups and columns, whose lists have a longer header."""
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
        b"PAR1",
        footer(b"PAR1")[:-1],
        b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
        footer(b"\x1c" * 5000),  # nests
        footer(b"\x19\xfc" + b"\xff" * 9),  # lists
        footer(b"\x19\xfc" + b"\xff" * 9 + b"\x01"),
        footer(b"\x1f\x00"),  # a type that there is not
        footer(b"\x00"),  # names no row groups
    ],
)
def test_a_damaged_footer_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="footer"):
        counted(tmp_path / "x")
