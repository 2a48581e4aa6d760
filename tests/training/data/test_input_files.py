"""Inputs of edges in files: the same numbers, in pages that the system may take back."""

import gc
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bigtrk.errors import RankError
from bigtrk.training.data.input_files import InputFiles
from tests.mounts import mounted
from tests.open_files import open_files

LARGE = 600_000  # of four bytes: more than the least that goes to a file


@dataclass(frozen=True)
class Part:
    rows: Tensor


@dataclass(frozen=True)
class Whole:
    name: str
    part: Part
    first: Tensor
    small: Tensor
    none: Tensor | None = None


def test_large_tensors_lie_in_files_without_a_name(tmp_path: Path) -> None:
    values = torch.arange(3.0 * LARGE).view(LARGE, 3)
    whole = Whole("event", Part(values), values[: LARGE // 2, 1:], torch.ones(9))
    expected = values.clone()
    moved = InputFiles(tmp_path, "--spill").moved(whole)
    assert torch.equal(moved.part.rows, expected)
    assert torch.equal(moved.first, expected[: LARGE // 2, 1:])
    assert moved.small is whole.small
    assert (moved.name, moved.none) == ("event", None)
    assert not list(tmp_path.iterdir())
    # Parts of the same memory lie there once.
    assert moved.first.untyped_storage().data_ptr() == moved.part.rows.untyped_storage().data_ptr()
    del moved
    gc.collect()
    assert not open_files(tmp_path)


def test_a_freed_file_is_used_again(tmp_path: Path) -> None:
    """Nothing needs the folder then, so that it may be gone."""
    folder = tmp_path / "folder"
    folder.mkdir()
    files = InputFiles(folder, "--spill")
    first, second = (files.moved(Part(torch.full((LARGE,), value))) for value in (1.0, 2.0))
    folder.rmdir()
    del first
    gc.collect()
    third = files.moved(Part(torch.full((2 * LARGE,), 3.0)))
    assert (int(third.rows.sum()), int(second.rows.sum())) == (6 * LARGE, 2 * LARGE)
    with pytest.raises(RankError, match=r"folder: the inputs of edges cannot be written"):
        files.moved(Part(torch.ones(LARGE)))


def test_what_lies_in_a_file_is_left_there(tmp_path: Path) -> None:
    files = InputFiles(tmp_path, "--spill")
    moved = files.moved(torch.ones(LARGE))
    assert files.moved(moved) is moved
    moved += 1  # stays in this process
    assert moved.sum() == 2 * LARGE
    path = tmp_path / "graph"
    path.write_bytes(bytes(4 * LARGE))
    stored = torch.from_numpy(np.memmap(path, np.float32, "c"))
    assert files.moved(stored) is stored


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "disk", "size=1m") as folder,
        pytest.raises(
            RankError, match=r"--spill=.*disk: the inputs of edges cannot be written .*No space"
        ),
    ):
        InputFiles(folder, "--spill").moved(torch.ones(LARGE))
