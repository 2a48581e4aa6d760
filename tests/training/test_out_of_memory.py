"""What is said, and kept, when memory runs out: a GPU's, without one, and the host's."""

import os
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from bigtrk.errors import RankError
from bigtrk.parallel.process_group import process_group
from bigtrk.tracing import traced
from bigtrk.training import loss
from bigtrk.training.guards import VIEWER, allocations_noted, report_out_of_memory
from tests.distributed.ranks import ALONE
from tests.distributed.runs import ENGINES, settings, train, write_events

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
ON_HOST = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 20 GiB")


class Dumped:
    """Stands for torch's writer of snapshots: it notes what it is asked, and what is alive then."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.alive: list[bool] = []
        self.watched: list[weakref.ref[Tensor]] = []
        self._fails = fails

    def __call__(self, name: str) -> None:
        self.asked.append(name)
        self.alive = [one() is not None for one in self.watched]
        if self._fails:
            raise self._fails
        Path(name).write_bytes(b"segments")


@pytest.fixture
def dumped(monkeypatch: pytest.MonkeyPatch) -> Dumped:
    made = Dumped()
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", made)
    return made


def said(path: Path | None, error: Exception, dumped: Dumped | None = None) -> str:
    """Returns what is said when `error` is raised by a layer that holds a tensor."""

    def layer() -> None:
        rows = torch.zeros(3)
        if dumped:
            dumped.watched.append(weakref.ref(rows))
        raise error

    with (
        pytest.raises(RankError) as raised,
        report_out_of_memory("rank 3", "take more ranks", snapshot=path),
        traced("layer 2 edge"),
    ):
        layer()
    return str(raised.value)


def test_a_snapshot_of_a_gpu_is_written_and_named(tmp_path: Path, dumped: Dumped) -> None:
    path = tmp_path / "memory-rank3.pickle"
    text = said(path, torch.OutOfMemoryError(*FULL.args), dumped)
    assert text.startswith("rank 3 ran out of memory in layer 2 edge (CUDA out of memory.")
    assert text.endswith(f"take more ranks. What held it is in {path}, for {VIEWER}")
    assert path.read_bytes() == b"segments"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left"
    assert dumped.alive == [True], "what filled the memory is still there"


@pytest.mark.parametrize("error", [ON_HOST, MemoryError("20 GiB")])
def test_there_is_none_of_the_hosts_memory(
    tmp_path: Path, dumped: Dumped, error: Exception
) -> None:
    text = said(tmp_path / "memory.pickle", error)
    assert text.endswith("; take more ranks")
    assert (dumped.asked, list(tmp_path.iterdir())) == ([], [])


def test_without_a_run_none_is_written(dumped: Dumped) -> None:
    assert said(None, torch.OutOfMemoryError(*FULL.args)).endswith("; take more ranks")
    assert dumped.asked == []


@pytest.mark.parametrize(
    "fails", [OSError(28, "No space left on device"), RuntimeError("the driver has shut down")]
)
def test_a_snapshot_that_fails_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Exception
) -> None:
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", Dumped(fails))
    text = said(tmp_path / "memory.pickle", torch.OutOfMemoryError(*FULL.args))
    assert "rank 3 ran out of memory in layer 2 edge" in text
    assert "take more ranks. What held it could not be written (" in text
    assert str(fails.args[-1]) in text
    assert list(tmp_path.iterdir()) == []


def test_other_errors_stay_what_they_are(tmp_path: Path, dumped: Dumped) -> None:
    with (
        pytest.raises(RuntimeError, match="shapes"),
        report_out_of_memory("rank 3", "take more ranks", snapshot=tmp_path / "memory.pickle"),
    ):
        raise RuntimeError("shapes do not match")
    assert dumped.asked == []


def test_allocations_are_noted_on_a_gpu_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def note(enabled: str | None = "all", **options: int) -> None:
        calls.append((enabled, bool(options.get("max_entries"))))

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", note)
    with allocations_noted(torch.device("cpu")):
        assert calls == []

    def fail() -> None:
        with allocations_noted(torch.device("cuda", 0)):
            assert calls == [("all", True)]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert calls == [("all", True), (None, False)]


@pytest.mark.usefixtures("dumped")
def test_a_training_leaves_it_in_the_runs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Tensor:
        raise torch.OutOfMemoryError(*FULL.args)

    write_events(tmp_path, 3)
    run = tmp_path / "run"
    monkeypatch.setattr(loss, "edge_loss", full)
    with patch.dict(os.environ), process_group(ALONE), pytest.raises(RankError) as raised:
        train(ALONE, settings(tmp_path, run, 1, ENGINES["DDP"]))
    assert str(raised.value).startswith("rank 0 ran out of memory in step 0, loss (CUDA out of")
    assert f"What held it is in {run / 'memory-rank0.pickle'}" in str(raised.value)
    assert (run / "memory-rank0.pickle").read_bytes() == b"segments"
