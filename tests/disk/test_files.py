"""Files and folders are whole or absent, also where a file system lacks operations; its errors
name a file.
"""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from bigtrk.disk.files import new_folder, open_to_append, whole_folder, write_json, write_new_json
from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import write_tensors
from bigtrk.records.run_folder import append_metrics
from tests.reports.run_folders import step_record


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def fsync_of_files(handle: int) -> None:
    if Path(f"/proc/self/fd/{handle}").is_dir():
        refuse()


def test_operations_that_data_do_without_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", fsync_of_files)
    for missing in ("chmod", "link"):
        monkeypatch.setattr(os, missing, refuse)
    new, old = tmp_path / "folder" / "new.json", tmp_path / "old.json"
    write_json(old, 1)
    with whole_folder(new.parent) as folder:
        write_new_json(folder / new.name, 2)
    for path in (new, old):
        with pytest.raises(FileExistsError):
            write_new_json(path, 3)
    assert [new.read_text(), old.read_text()] == ["2\n", "1\n"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "new.json", "old.json"]


@pytest.fixture
def full() -> Iterator[None]:
    """No file may grow beyond a page, as if the disk were full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def write_in_folder(path: Path) -> None:
    with whole_folder(path) as folder:
        (folder / "text").write_text("x" * 9999)


def append(path: Path) -> None:
    with open_to_append(path.with_name("metrics.jsonl")) as lines:
        lines.write(" " * 4096)
    append_metrics(path.parent, step_record(0))


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda path: write_json(path, "x" * 9999), "out"),
        (lambda path: write_tensors(path, {"x": torch.zeros(9999)}), "out"),
        (write_in_folder, "out"),
        (append, "metrics.jsonl"),
    ],
)
def test_an_error_of_an_open_file_names_it(
    tmp_path: Path, write: Callable[[Path], None], name: str
) -> None:
    with pytest.raises(OSError, match="File too large") as caught:
        write(tmp_path / "out")
    assert str(tmp_path / name) in str(caught.value)
    assert not (tmp_path / "out").exists()


def fill(path: Path, name: str) -> None:
    with whole_folder(path) as folder:
        (folder / name).write_text(name)
        assert not (path / name).exists()


def names(path: Path) -> list[str]:
    return sorted(one.relative_to(path).as_posix() for one in path.rglob("*"))


def test_it_is_made_and_replaced_and_left_where_writing_fails(tmp_path: Path) -> None:
    def failing(path: Path) -> None:
        with whole_folder(path) as folder:
            (folder / "three").write_text("")
            raise OSError("full")

    for name in ("one", "two"):
        fill(tmp_path / "some" / "out", name)
    for name in ("some/out", "absent"):
        with pytest.raises(OSError, match="full"):
            failing(tmp_path / name)
    assert names(tmp_path) == ["some", "some/out", "some/out/two"]


def test_it_is_put_back_where_renaming_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "out", "one")
    rename = Path.rename

    def refusing(self: Path, target: Path) -> Path:
        if self.name.endswith(".tmp"):
            raise OSError("refused")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(OSError, match="refused"):
        fill(tmp_path / "out", "two")
    assert names(tmp_path) == ["out", "out/one"]


def test_what_is_there_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("file", "full", "link"):
        with (
            pytest.raises(InputError, match=rf"{name}: exists already; remove it, or name a new"),
            new_folder(tmp_path / name),
        ):
            pass
    with pytest.raises(InputError, match="link: is a symbolic link"):
        fill(tmp_path / "link", "one")
    assert (tmp_path / "full" / "a").read_text() == "mine"
    assert list((tmp_path / "empty").iterdir()) == []
