"""Bad input ends in an InputError that names the file, the row where there is one, a remedy."""

import gzip
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from bigtrk.errors import InputError
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.trackml import read_detectors

NAME = "event000000007"


def refused(path: Path, *parts: str) -> None:
    with pytest.raises(InputError) as caught:
        read_event(path)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def spoil(folder: Path, table: str, old: str, new: str) -> str:
    path = folder / f"{NAME}-{table}.csv"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return str(path)


@pytest.mark.parametrize(
    ("table", "old", "new", "row", "problem", "remedy"),
    [
        ("hits", "70.5", "nan", 3, "x is blank or NaN", "correct the value"),
        ("hits", "70.5", "inf", 3, "x is inf", "correct the value"),
        ("hits", "70.5", "abc", 3, "x is 'abc', not a number", "correct the value"),
        ("hits", "3,110.5", "1,110.5", 4, "hit_id 1 appears a second time", "remove one"),
        ("hits", ",8,4,2", ",8,4", 3, "6 values where the header has 7", "fetch it again"),
        ("hits", ",8,4,2", ",8,4,2\n", 4, "hit_id is blank", "correct the value"),
        ("truth", "3,0,110.5", "9,0,110.5", 4, "hit_id 9 is not in", "remove the row"),
        ("truth", "3,0,110.5", "3,9223372036854775808,110.5", 4, "not an integer", "export"),
        ("hits", "module_id", "x", 1, "column 'x' appears twice", "remove one"),
        ("hits", ",module_id", ",module", 1, "missing column module_id", "TrackML's hits file"),
    ],
)
def test_a_bad_row(
    tiny: Path, table: str, old: str, new: str, row: int, problem: str, remedy: str
) -> None:
    file = spoil(tiny, table, old, new)
    refused(tiny, f"{file}, row {row}: ", problem, remedy)


def test_an_empty_table_a_cut_one_and_text_that_is_not_utf8(tiny: Path) -> None:
    path = tiny / f"{NAME}-truth.csv"
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:2]))
    refused(tiny, f"{path}: 2 of 3 hits have no row (the first: hit 2); add rows (noise: particle_")
    path.write_text(whole)
    path = tiny / f"{NAME}-hits.csv"
    path.write_bytes(path.read_bytes().replace(b"70.5", b"\xff\xfe"))
    refused(tiny, f"{path}, row 3: x is ", "correct the value")
    for content in ("", "hit_id,x,y,z,volume_id,layer_id,module_id\n"):
        path.write_text(content)
        refused(tiny, f"{path}: the table is empty; export it again")


def test_a_damaged_gzip_file(tiny: Path) -> None:
    """Browsers unpack some downloads and keep their names, too."""
    path = tiny / f"{NAME}-hits.csv"
    whole = gzip.compress(path.read_bytes())
    packed = path.rename(path.with_name(f"{path.name}.gz"))
    refused(tiny, f"{packed}: is not a gzip file", f"rename it to {path.name}")
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (whole[:-20], flipped, whole + b"rubbish"):
        packed.write_bytes(content)
        refused(tiny, f"{packed}: is damaged or truncated", "fetch it again")


def test_hits_may_be_none_where_truth_is_not_read(tiny: Path) -> None:
    for table in ("hits", "cells"):
        path = tiny / f"{NAME}-{table}.csv"
        path.write_text(path.read_text().splitlines()[0])
    event = read_event(tiny, with_truth=False)
    assert {len(column) for column in event.hits.values()} == {0}
    assert event.hits["hit_id"].dtype == np.int64
    (tiny / f"{NAME}-hits.csv").write_text("")
    with pytest.raises(InputError, match="the table is empty"):
        read_event(tiny, with_truth=False)


def test_a_damaged_zip_archive(tiny: Path) -> None:
    archive = tiny / "sample.zip"
    with ZipFile(archive, "w") as target:
        target.write(tiny / f"{NAME}-hits.csv", f"{NAME}-hits.csv")
    content = bytearray(archive.read_bytes())
    place = content.index(b"70.5")
    content[place] ^= 1
    archive.write_bytes(content)
    refused(archive, f"{archive}: {NAME}-hits.csv cannot be read", "fetch the archive again")
    archive.write_bytes(content[: len(content) // 2])
    refused(archive, f"{archive}: is neither a folder nor a readable zip", "fetch the archive")


UNSAFE = ("../evil.csv", "a/../../b.csv", "/etc/x.csv", "C:\\x.csv")


@pytest.mark.parametrize(
    ("member", "problem", "remedy"),
    [
        *((member, "the unsafe member", "make the archive again") for member in UNSAFE),
        (f"b/{NAME}-hits.csv", f"{NAME}-hits.csv twice", "unpack it"),
    ],
)
def test_a_bad_zip_member(tiny: Path, member: str, problem: str, remedy: str) -> None:
    archive = tiny / "sample.zip"
    with ZipFile(archive, "w") as target:
        target.write(tiny / f"{NAME}-hits.csv", f"{NAME}-hits.csv")
        target.writestr(member, "x")
    refused(archive, f"{archive}: holds {problem}", remedy)


def test_archives_in_an_archive_or_a_folder(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for folder, told in (("data.zip", "unpack it and name one"), ("data", "train_1.zip; name one")):
        with ZipFile(tmp_path / ("data" if folder == "data" else "") / "train_1.zip", "w") as inner:
            inner.write(tiny / f"{NAME}-hits.csv", f"{NAME}-hits.csv")
        if folder == "data.zip":
            with ZipFile(tmp_path / folder, "w") as outer:
                outer.write(tmp_path / "train_1.zip", "train_1.zip")
        refused(tmp_path / folder, "holds no events, but archives such as train_1.zip", told)


def test_folders_without_what_is_asked_for(tiny: Path) -> None:
    (tiny / "none").mkdir()
    (tiny / "outer").mkdir()
    (tiny / "outer" / "inner").symlink_to(tiny)
    refused(tiny / "outer", f"outer: holds no events, but {tiny}/outer/inner does; name {tiny}/")
    refused(tiny / "absent", f"{tiny / 'absent'}: no such file or folder", "name a folder or zip")
    refused(tiny / "none", f"{tiny / 'none'}: holds no events", "bigtrk simulate")
    with pytest.raises(InputError, match=r"holds no events.*bigtrk simulate"):
        find_events(tiny / "none")
    with pytest.raises(InputError, match=r"holds no detectors\.csv.*copy the detector file"):
        read_detectors(tiny)
    (tiny / f"{NAME}-hits.csv").unlink()
    refused(tiny / NAME, str(tiny), f"has no {NAME}-hits.csv", "name another event")
