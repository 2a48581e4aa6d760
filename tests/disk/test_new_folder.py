"""Folders that are absent or whole."""

from pathlib import Path

import pytest

from bigtrk.disk.new_folder import new_folder
from bigtrk.errors import InputError


def test_a_folder_is_there_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with new_folder(out) as unfinished:
        (unfinished / "a").write_text("1")
        assert not out.exists()
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert (out / "a").read_text() == "1"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "out") as unfinished:
            (unfinished / "a").write_text("1")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".out.unfinished"
    left.mkdir()
    (left / "half").write_text("1")
    with new_folder(tmp_path / "out"):
        pass
    assert list((tmp_path / "out").iterdir()) == []


def test_what_is_there_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("file", "full", "link"):
        with (
            pytest.raises(InputError, match=rf"{name}: holds something already; name a new"),
            new_folder(tmp_path / name),
        ):
            pass
    assert (tmp_path / "full" / "a").read_text() == "mine"
    assert list((tmp_path / "empty").iterdir()) == []
