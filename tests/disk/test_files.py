"""Files are whole or absent also where a file system lacks operations; its errors name a file."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from bigtrk.disk.files import open_to_append, whole_folder, write_json, write_new_json
from bigtrk.graphs.storage.tensor_files import write_tensors
from bigtrk.records.run_folder import append_metrics
from tests.reports.run_folders import step_record


def refusing(number: int) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return refuse


def fsync_refusing_folders(number: int) -> Callable[[int], None]:
    def fsync(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").is_dir():
            refusing(number)()

    return fsync


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_operations_that_data_do_without_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "fsync", fsync_refusing_folders(number))
    for missing in ("chmod", "link"):
        monkeypatch.setattr(os, missing, refusing(number))
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
