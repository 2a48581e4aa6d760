"""A run's files stay in its folder, whatever links others laid in it."""

import os
from pathlib import Path

import pytest

import bigtrk
from bigtrk.disk.files import write_json
from bigtrk.disk.folder_lock import LOCK, FolderLock
from bigtrk.errors import InputError
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import METRICS, RUN, append_metrics
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.model_files import describe, model_configuration
from bigtrk.training.monitoring.meter import profiled
from bigtrk.training.run_folder import (
    CHECKPOINTS,
    DESCRIPTION,
    FLIGHT,
    create_run,
    hold,
    remove_run,
)
from bigtrk.training.settings import Configuration
from tests.reports.run_folders import run_record, step_record
from tests.training.checkpoint.test_files import write

LINK = "is a symbolic link, which may lead to others' files; remove it"


def link(path: Path, target: Path) -> str:
    """Lay a link; what is to be said of it."""
    path.symlink_to(target)
    return f"{path}: {LINK}"


@pytest.mark.parametrize("name", [METRICS, CHECKPOINTS, FLIGHT, "wandb"])
def test_links_at_what_a_run_writes_are_refused(tmp_path: Path, name: str) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    said = link(run / name, outside)
    with FolderLock() as lock, pytest.raises(InputError, match=said):
        create_run(lock, run, run_record())
    if name == METRICS:
        with pytest.raises(InputError, match=said):
            append_metrics(run, step_record(1))
    outside.mkdir()
    with FolderLock() as lock, pytest.raises(InputError, match=said):
        hold(lock, run)
    assert list(run.iterdir()) == [run / name]
    assert list(outside.iterdir()) == []


def test_the_run_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    run = tmp_path / "run"
    run.symlink_to(tmp_path / "scratch")
    with FolderLock() as lock:
        assert create_run(lock, run, run_record()) == run
        append_metrics(run, step_record(1))
        lock.check()
        assert {path.name for path in (tmp_path / "scratch").iterdir()} == {LOCK, METRICS, RUN}
    write(run, 4)
    assert last_good(run).folder.name == "step-00000004"


@pytest.mark.parametrize("where", ["file", "configuration"])
def test_a_model_of_another_version_is_read_as_of_this_one(tmp_path: Path, where: str) -> None:
    described = describe(Configuration(), [])
    (described if where == "file" else described["configuration"])["novelty"] = 1
    write_json(tmp_path / DESCRIPTION, described)
    version = rf"novelty.*this is bigtrk {bigtrk.__version__}; use the version.*run\.json"
    with pytest.raises(InputError, match=version):
        model_configuration(tmp_path)


@pytest.mark.parametrize("name", [CHECKPOINTS, f"{CHECKPOINTS}/step-00000004"])
def test_linked_checkpoints_are_neither_read_nor_removed(tmp_path: Path, name: str) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    other.mkdir()
    kept = [write(other, step) for step in (4, 8)]
    (mine / name).parent.mkdir(parents=True)
    said = link(mine / name, other / name)
    with pytest.raises(InputError, match=said):
        last_good(mine)
    with pytest.raises(InputError, match=said):
        write(mine, 12)
    assert sorted((other / CHECKPOINTS).glob("*step*")) == kept
    assert last_good(other).folder == kept[1]


def test_a_trace_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "host")
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    for name in ("trace-rank0.json.gz", f".trace-rank0.json.gz.host.{os.getpid()}.tmp.gz"):
        (run / name).symlink_to(outside)
    with profiled(run, Ranks(0, 1, 0, 1, "test"), 2) as after_step:
        after_step()
        after_step()
    assert not outside.exists()
    assert not (run / "trace-rank0.json.gz").is_symlink()


def test_runs_that_are_written_and_links_are_not_removed(tmp_path: Path) -> None:
    run, linked = tmp_path / "run", tmp_path / "link"
    run.mkdir()
    with FolderLock() as lock:
        lock.take(run)
        with pytest.raises(InputError, match="is writing there"):
            remove_run(run)
        lock.check()
    said = link(linked, run)
    with pytest.raises(InputError, match=said):
        remove_run(linked)
    assert run.exists()
    remove_run(run)
    assert list(tmp_path.iterdir()) == [linked]


@pytest.mark.parametrize("left", [RUN, METRICS, CHECKPOINTS])
def test_a_folder_that_holds_part_of_a_run_is_not_taken(tmp_path: Path, left: str) -> None:
    (tmp_path / left).touch()
    with FolderLock() as lock, pytest.raises(InputError, match="it has no checkpoint to continue"):
        create_run(lock, tmp_path, run_record())
    assert list(tmp_path.iterdir()) == [tmp_path / left]
