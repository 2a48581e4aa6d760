"""Archives and npz files that lie, burst or lead elsewhere are refused."""

import gzip
import io
import os
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigtrk.config import read_yaml
from bigtrk.disk import unpacking
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.events.reader import read_event
from bigtrk.formats.heptrkx import read_heptrkx
from bigtrk.graphs.storage.event_folder import SectionFile
from tests.hostile.event_files import a_zip, plain_tables
from tests.hostile.foreign_files import heptrkx_arrays
from tests.hostile.reader import EVENT, same


def bomb(path: Path, member: str, size: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, b"\0" * size)
    return path


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", 10_000)


@pytest.mark.usefixtures("small_limits")
def test_archive_bombs_are_refused(tmp_path: Path) -> None:
    hits = f"{EVENT}-hits.csv"
    with pytest.raises(InputError, match=r"hits\.csv: unpacks to more than .* unpack it yourself"):
        read_event(bomb(tmp_path / "a.zip", hits, 10_000_000))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / f"{hits}.gz").write_bytes(gzip.compress(bytes(10_000_000)))
    with pytest.raises(InputError, match=r"hits\.csv\.gz: unpacks to more than"):
        read_event(tmp_path / "b")
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{hits}.gz", gzip.compress(bytes(9_000_000)))
    with pytest.raises(InputError, match=r"hits\.csv\.gz: unpacks to more than"):
        read_event(tmp_path / "c.zip")
    np.savez_compressed(tmp_path / "d.npz", **{**heptrkx_arrays(), "X": np.zeros((10**6, 3))})
    with pytest.raises(InputError, match=r"X\.npy: unpacks to more than"):
        read_heptrkx(tmp_path / "d.npz")


@pytest.mark.usefixtures("small_limits")
def test_a_bomb_that_lies_of_its_size_is_refused(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.zip", f"{EVENT}-hits.csv", 10_000_000)
    size = struct.pack("<L", 10_000_000)
    path.write_bytes(path.read_bytes().replace(size, struct.pack("<L", 100)))
    with pytest.raises(InputError, match=r"a\.zip: .*hits\.csv cannot be read"):
        read_event(path)


def test_gzip_members_count_together(tmp_path: Path) -> None:
    """A table of several streams is read whole; its last stream's size is not that of the whole."""
    table = plain_tables()[f"{EVENT}-hits.csv"]
    packed = gzip.compress(table[:500]) + gzip.compress(table[500:])
    (tmp_path / f"{EVENT}-hits.csv.gz").write_bytes(packed)
    found = read_event(tmp_path).hits
    (tmp_path / f"{EVENT}-hits.csv.gz").write_bytes(gzip.compress(table))
    assert same(found, read_event(tmp_path).hits)


def test_links_rare_methods_and_encrypted_members_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo(f"{EVENT}-hits.csv")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    for path in (tmp_path / "a.zip", tmp_path / "a.npz"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(link, "/etc/passwd")
    with pytest.raises(InputError, match="symbolic link"):
        read_event(tmp_path / "a.zip")
    with pytest.raises(InputError, match="symbolic link"):
        read_heptrkx(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr(f"{EVENT}-hits.csv", b"\0" * 1000)
    with pytest.raises(InputError, match="not compressed by deflate"):
        read_event(tmp_path / "b.zip")
    content = bytearray(a_zip())
    for magic, place in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        content[content.index(magic) + place] |= 1
    (tmp_path / "c.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"c\.zip: .*cells\.csv cannot be read.*encrypted"):
        read_event(tmp_path / "c.zip")


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / f"{EVENT}-hits.csv"
    os.mkfifo(pipe)
    for read in (read_event, read_json, read_yaml, read_heptrkx, SectionFile):
        with pytest.raises(InputError, match="exists, but is not a file"):
            read(tmp_path if read is read_event else pipe)


FLOATS = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"


def npy(header: str) -> bytes:
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + bytes(36)


def saved(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (npy(FLOATS % f"({2**62}, 4)"), "cannot be read|holds"),
        (npy(FLOATS % "(-3, 3)"), "cannot be read|holds"),
        (npy("__import__('os')"), "cannot be read"),
        (npy("(" * 5000), "cannot be read"),
        (saved(np.array([[print, print, print]], dtype=object)), "cannot be read"),
        (saved(heptrkx_arrays()["X"] * 1e30), "holds coordinates beyond"),
    ],
)
def test_arrays_that_lie_or_are_pickles_are_refused(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, array in heptrkx_arrays().items():
            archive.writestr(f"{key}.npy", content if key == "X" else saved(array))
    with pytest.raises(InputError, match=rf"a\.npz: array 'X' ({complaint})"):
        read_heptrkx(path)
