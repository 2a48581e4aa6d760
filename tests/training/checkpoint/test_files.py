"""Checkpoints on disk: all damage is found and named, the last good one is kept."""

import errno
import random
import shutil
from pathlib import Path

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.training.checkpoint.checkpointer import stored_weights
from bigtrk.training.checkpoint.folder import (
    Found,
    commit,
    last_good,
    make_temporary,
    read_newest,
    take_last_good,
    temporary_of,
)
from bigtrk.training.checkpoint.manifest import (
    KINDS,
    MANIFEST,
    Checkpoint,
    EpochTotals,
    Progress,
    shard_name,
    write_shard,
)
from bigtrk.training.guards import LossHistory
from bigtrk.training.schedule import Plateau

FILES = (MANIFEST, shard_name(0), shard_name(1))


def progress(step: int) -> Progress:
    totals = EpochTotals(1, 2, 3, 0.1, 0.5, (4,))
    return Progress(0, step, step, Plateau(0.3, 1, 2), LossHistory((0.1, 1 / 3), 1), totals)


def write(run: Path, step: int, shards: int = 2) -> Path:
    """A checkpoint as `shards` ranks write it."""
    root, at = run / "checkpoints", progress(step)
    name = f"step-{step:08d}"
    make_temporary(root, name)
    made = [
        write_shard(
            temporary_of(root, name),
            rank,
            {f"{kind}/w": torch.full((1000,), float(step + rank)) for kind in KINDS},
            {"w": (1000 * rank, 1000 * (rank + 1), step)},
        )
        for rank in range(shards)
    ]
    written = Checkpoint(at, {"w": (1000 * shards,)}, tuple(made), "data", "DDP", {"a": 1}, {})
    commit(root, written)
    return root / name


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path, 4), write(tmp_path, 8)
    return tmp_path


def test_the_newest_is_found_as_it_was_written(run: Path) -> None:
    found = last_good(run)
    assert (found.folder.name, found.damaged) == ("step-00000008", {})
    assert found.checkpoint.progress == progress(8)
    assert found.checkpoint.shapes == {"w": (2000,)}
    assert found.checkpoint.shards[1].pieces == {"w": (1000, 2000, 8)}


def test_the_newest_is_read_again_where_a_living_run_has_replaced_it(run: Path) -> None:
    names = []

    def read(found: Found) -> torch.Tensor:
        names.append(found.folder.name)
        if len(names) == 1:
            write(run, 12), write(run, 16)
        return stored_weights(found.folder, found.checkpoint)["w"]

    weights = read_newest(run, read)
    assert names == ["step-00000008", "step-00000016"]
    assert weights.tolist() == [16.0] * 1000 + [17.0] * 1000


def damaged_is_named(run: Path, file: str) -> None:
    found = last_good(run)
    assert found.folder.name == "step-00000004"
    assert list(found.damaged) == ["step-00000008"]
    assert file in found.damaged["step-00000008"]


@pytest.mark.parametrize("file", FILES)
def test_damage_is_named_and_the_previous_one_taken(run: Path, file: str) -> None:
    path = run / "checkpoints" / "step-00000008" / file
    raw, half = path.read_bytes(), path.stat().st_size // 2
    zeroed = raw[:half] + bytes(64) + raw[half + 64 :]
    for damaged in (zeroed, raw[:-1], b"", raw + b"\n"):
        path.write_bytes(damaged)
        damaged_is_named(run, file)
    path.unlink()
    damaged_is_named(run, file)
    path.symlink_to("x" * 300)  # whose stat fails, as that of a folder without permission does
    damaged_is_named(run, file)


@pytest.mark.parametrize("file", FILES)
def test_every_flipped_bit_is_found(run: Path, file: str) -> None:
    path = run / "checkpoints" / "step-00000008" / file
    content, draw = path.read_bytes(), random.Random(0)
    for _ in range(100):
        flipped = bytearray(content)
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        damaged_is_named(run, file)
        path.write_bytes(content)
    assert last_good(run).damaged == {}


def test_without_a_good_one_all_damaged_files_are_named(run: Path) -> None:
    (run / "checkpoints" / "step-00000004" / MANIFEST).unlink()
    for file in FILES[1:]:
        (run / "checkpoints" / "step-00000008" / file).write_bytes(b"x")
    with pytest.raises(InputError, match="all checkpoints are damaged") as raised:
        last_good(run)
    assert "step-00000004: manifest.json is missing" in str(raised.value)
    assert "step-00000008: shard-00000.safetensors has 1 bytes instead of" in str(raised.value)
    assert ", shard-00001.safetensors has 1 bytes instead of" in str(raised.value)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(InputError, match="holds no checkpoint to resume from"):
        last_good(run)


def test_damaged_ones_are_set_aside_and_do_not_count(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "checkpoints" / "step-00000008" / FILES[1]).write_bytes(b"x")
    assert take_last_good(run).folder.name == "step-00000004"
    said = capsys.readouterr().out
    assert "step-00000008 is damaged: shard-00000.safetensors has" in said
    assert "the newest good one is step-00000004" in said
    assert last_good(run).damaged == {}
    write(run, 6)
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == ["damaged-step-00000008", "latest.json", "step-00000004", "step-00000006"]


def test_an_old_one_that_cannot_be_removed_ends_no_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EBUSY, "Device or resource busy", str(path / ".nfs01"))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", busy)
        patch.setattr("bigtrk.console._warned", set())
        write(run, 12), write(run, 16)
    warning = capsys.readouterr().err
    assert "step-00000004: cannot be removed now (" in warning
    assert warning.count("\n") == 1
    write(run, 20)
    left = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    assert left == ["step-00000016", "step-00000020"]


def test_what_a_crash_leaves_is_not_a_checkpoint(run: Path) -> None:
    make_temporary(run / "checkpoints", "step-00000012")
    (temporary_of(run / "checkpoints", "step-00000012") / shard_name(0)).write_text("half")
    assert last_good(run).folder.name == "step-00000008"
    write(run, 16)
    assert not list((run / "checkpoints").glob(".step-*"))
