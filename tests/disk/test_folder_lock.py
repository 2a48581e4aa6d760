"""A folder's lock: one process has it, the dead leave it, and whoever lost it knows."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk import folder_lock
from bigtrk.disk.folder_lock import LOCK, FolderLock, LockWatch, Owner, _started
from bigtrk.errors import InputError

PROCESSES, ROUNDS = 4, 25
ME = Owner.here()
ELSEWHERE = replace(ME, host="node7", process=1, space="elsewhere")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time runs forty times as fast and more."""
    for name, seconds in {"BEAT": 0.05, "DEAD": 1.5, "WATCHED": 0.5, "POLL": 0.02}.items():
        monkeypatch.setattr(folder_lock, name, seconds)


def lay(folder: Path, owner: Owner, silent: float = 0.0) -> Path:
    """The lock of an owner that has been silent for some seconds."""
    held = folder / LOCK / owner.name
    held.parent.mkdir(parents=True)
    held.touch()
    os.utime(held, (time.time() - silent, time.time() - silent))
    return held


def ended() -> Owner:
    """A process that was there."""
    with subprocess.Popen(["true"]) as process:
        return replace(ME, process=process.pid, started=ME.started + 1)


def owners(folder: Path) -> list[str]:
    return [path.name for path in (folder / LOCK).iterdir()]


def test_a_living_owner_is_named_until_its_block_ends(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), FolderLock() as lock:
        lock.take(tmp_path)
        assert owners(tmp_path) == [ME.name]
        with FolderLock() as other, pytest.raises(InputError) as caught:
            other.take(tmp_path)
        assert str(caught.value) == (
            f"{tmp_path}: process {os.getpid()} on {ME.host} is writing there; wait until it has "
            f"ended, or end it, or choose another folder"
        )
        lock.check()
        assert list(tmp_path.iterdir()) == [tmp_path / LOCK]
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def keep(folder: Path) -> None:
    with FolderLock() as lock:
        lock.take(folder)
        time.sleep(600)


def test_a_killed_process_has_no_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has none, before its parent has asked how it ended and after."""
    holder = multiprocessing.get_context("spawn").Process(target=keep, args=(tmp_path,))
    holder.start()
    while not (tmp_path / LOCK).exists():
        time.sleep(0.01)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    (owner,) = map(Owner.of, (tmp_path / LOCK).iterdir())
    assert owner.has_ended()
    with FolderLock() as lock:
        lock.take(tmp_path)
        assert owners(tmp_path) == [ME.name]
    holder.join()
    assert owner.has_ended()
    said = f"{tmp_path}: process {holder.pid} on {ME.host} has ended; its lock is taken over\n"
    assert capsys.readouterr().out == said, "it watched for no sign of life"


@pytest.mark.usefixtures("quick")
def test_a_sign_of_life_is_enough_where_the_process_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Owner, "has_ended", lambda _: None)
    monkeypatch.setattr(folder_lock, "WATCHED", 60)  # for beats of a busy machine
    with FolderLock() as lock:
        lock.take(tmp_path)
        os.utime(tmp_path / LOCK / ME.name, (0, 0))  # its host's clock is far behind
        with FolderLock() as other, pytest.raises(InputError, match="is writing there"):
            other.take(tmp_path)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("silent", "least"), [(3600.0, 0.5), (-3600.0, 1.4)])
def test_an_owner_elsewhere_is_dead_after_its_silence(
    tmp_path: Path, silent: float, least: float, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(tmp_path, ELSEWHERE, silent)
    start = time.monotonic()
    with FolderLock() as lock:
        lock.take(tmp_path)
        assert time.monotonic() - start > least
    assert "process 1 on node7 has ended; its lock is taken over" in capsys.readouterr().out


def contend(folder: Path, meet: Barrier, won: Any) -> None:
    for number in range(ROUNDS):
        with FolderLock() as lock:
            meet.wait()
            try:
                lock.take(folder / str(number))
                won.put(number)
            except InputError:
                pass
            meet.wait()


def test_of_many_that_try_at_once_one_gets_it(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        (tmp_path / str(number)).mkdir()
        if number % 2:
            lay(tmp_path / str(number), ended())
    context = multiprocessing.get_context("spawn")
    meet, won = context.Barrier(PROCESSES, timeout=300), context.SimpleQueue()
    processes = [
        context.Process(target=contend, args=(tmp_path, meet, won)) for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    wins = []
    while not won.empty():
        wins.append(won.get())
    assert wins == list(range(ROUNDS))


def test_a_lock_found_dead_is_not_taken_from_who_was_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, ended())
    faster = replace(ME, process=os.getppid(), started=_started(os.getppid()) or 0)
    judge = FolderLock._is_dead

    def judge_slowly(self: FolderLock, owner: Owner, held: Path, new: Path, patient: bool) -> bool:
        found = judge(self, owner, held, new, patient)
        if owner != faster:
            held.rename(held.with_name(faster.name))
        return found

    monkeypatch.setattr(FolderLock, "_is_dead", judge_slowly)
    with FolderLock() as lock, pytest.raises(InputError, match=f"process {faster.process} on"):
        lock.take(tmp_path)
    assert owners(tmp_path) == [faster.name]


LOSSES: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (lambda folder: shutil.rmtree(folder / LOCK), rf"{LOCK}: was moved or removed \("),
    "moved": (lambda folder: folder.rename(folder.with_name("b")), "No such file or directory"),
    "taken": (
        lambda folder: (folder / LOCK / ME.name).rename(folder / LOCK / ELSEWHERE.name),
        "seemed abandoned and was taken over by process 1 on node7",
    ),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("loss", LOSSES)
def test_who_lost_the_lock_is_told_and_takes_nothing_back(tmp_path: Path, loss: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    lose, said = LOSSES[loss]
    with FolderLock() as lock:
        lock.take(folder)
        lose(folder)
        time.sleep(0.2)  # some beats
        with pytest.raises(InputError, match=said) as caught:
            lock.check()
        assert "so this process stops writing there and ends" in str(caught.value)
    left = {"removed": [], "moved": [], "taken": [folder / LOCK / ELSEWHERE.name]}
    assert [path for path in folder.rglob("*") if path.name != LOCK] == left[loss]
    assert folder.exists() == (loss != "moved")


@pytest.mark.parametrize(
    ("lay_strange", "said"),
    [
        (lambda place: place.symlink_to(place.parent), f"{LOCK}: is a symbolic link"),
        (lambda place: place.touch(), f"/{LOCK}: Not a directory"),
        (lambda place: (place / "notes").mkdir(parents=True), "notes: is no file of a lock; move"),
    ],
)
def test_what_is_no_lock_is_named(
    tmp_path: Path, lay_strange: Callable[[Path], object], said: str
) -> None:
    lay_strange(tmp_path / LOCK)
    with FolderLock() as lock, pytest.raises(InputError, match=said):
        lock.take(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / LOCK]


def test_a_patient_process_waits_for_a_living_one(tmp_path: Path) -> None:
    lock = FolderLock()
    lock.take(tmp_path)
    release = threading.Timer(0.2, lock.release)
    release.start()
    with FolderLock() as other:
        # The same process would have the same name: another one stands for it.
        other._own = replace(ME, process=os.getppid(), started=_started(os.getppid()) or 0)
        other.take(tmp_path, patient=True)
        assert lock._released.is_set()
        other.check()
    release.join()
    assert list(tmp_path.iterdir()) == []


def test_a_watch_knows_at_once_of_processes_here(tmp_path: Path) -> None:
    watch = LockWatch(tmp_path)
    assert (watch.owner, watch.lives()) == (None, False)
    with FolderLock() as lock:
        lock.take(tmp_path)
        assert (watch.owner, watch.lives()) == (ME, True)
    assert watch.lives() is False
    dead = ended()
    lay(tmp_path, dead)
    assert (watch.owner, watch.lives()) == (dead, False)


@pytest.mark.usefixtures("quick")
def test_a_watch_waits_for_a_sign_of_life_from_elsewhere(tmp_path: Path) -> None:
    held, watch = lay(tmp_path, ELSEWHERE), LockWatch(tmp_path)
    assert watch.lives() is None, "not known yet"
    os.utime(held, (1, 1))
    start = time.monotonic()
    assert watch.lives() is True
    while watch.lives() is True:
        time.sleep(0.02)
    assert watch.lives() is False
    assert time.monotonic() - start >= folder_lock.DEAD
    os.utime(held, (2, 2))
    assert watch.lives() is True, "it was suspended"
