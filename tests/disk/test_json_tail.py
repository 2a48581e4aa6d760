"""A file that another process writes is read as it grows: each line once, whole ones alone."""

import json
from pathlib import Path

import pytest

from bigtrk.disk import json_lines
from bigtrk.disk.json_lines import JsonTail
from bigtrk.errors import InputError


def line(number: int) -> bytes:
    return json.dumps({"number": number, "text": "x" * number}).encode() + b"\n"


def numbers(tail: JsonTail) -> list[int]:
    return [found.content["number"] for found in tail.new_lines()]


def test_each_line_is_read_once_whatever_is_there_at_a_look(tmp_path: Path) -> None:
    """A look after each byte that was written finds what a reader of whole lines would."""
    path, tail, found = tmp_path / "lines", JsonTail(tmp_path / "lines"), list[int]()
    assert numbers(tail) == []
    written = line(1) + b"\n" + line(2) + line(3)
    for end in range(len(written) + 1):
        path.write_bytes(written[:end])
        assert not tail.begins_anew()
        found += numbers(tail)
        assert found == [n for n in (1, 2, 3) if written[:end].find(line(n)) >= 0]
    assert found == [1, 2, 3]


@pytest.mark.parametrize("kept", [b"", line(1) + line(5), line(1) + line(2)[:-5]])
def test_a_file_that_lost_lines_is_read_anew(tmp_path: Path, kept: bytes) -> None:
    path, tail = tmp_path / "lines", JsonTail(tmp_path / "lines")
    path.write_bytes(line(1) + line(2))
    assert numbers(tail) == [1, 2]
    path.write_bytes(kept)
    assert tail.begins_anew()
    assert not tail.begins_anew()
    expected = [n for n in (1, 5) if line(n) in kept]
    assert numbers(tail) == expected


def test_lines_and_files_larger_than_any_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(json_lines, "MOST_LINES", 100)
    path = tmp_path / "lines"
    path.write_bytes(b"x" * (1 << 21))
    with pytest.raises(InputError, match="line 1: is longer than 1 MiB"):
        numbers(JsonTail(path))
    path.write_bytes(b"{}\n" * 101)
    with pytest.raises(InputError, match="lines: has more than 100 lines"):
        list(JsonTail(path).new_lines())
    with pytest.raises(InputError, match="exists, but is not a file"):
        list(JsonTail(tmp_path).new_lines())
