"""A lock on a folder: only the process that holds it writes there, on whatever host it runs.

The file FOLDER/lock/HOST-PROCESS-STARTED-SPACE exists as long as a process holds the folder; its
time of change is the last sign of life. Not every shared file system has the kernel's locks, but a
rename is one operation on all of them. A new owner renames a folder with its file to `lock`, which
fails while `lock` holds another's file; or it renames a dead owner's file, which only one can do.
"""

import errno
import hashlib
import os
import platform
import threading
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from bigtrk.console import say
from bigtrk.disk.files import disk_errors, naming, unlinked
from bigtrk.errors import InputError

LOCK = "lock"
ENDED = 0  # in place of a time of start
BEAT = 5.0  # s between two signs of life
DEAD = 60.0  # s without one
# s to watch before an owner counts as dead: while a file system hangs, nobody shows life, and
# Lustre takes times from the clients' clocks.
WATCHED = 3 * BEAT
POLL = 0.5  # s
SHORT = 0.02  # s between two tries of a patient process: such locks are held only briefly


class HeldError(InputError):
    """Another living process holds the folder."""


@dataclass(frozen=True)
class Owner:
    """A process that holds a lock. started: in ticks; space: its boot and container, as a hash."""

    host: str
    process: int
    started: int
    space: str

    @staticmethod
    def here() -> "Owner":
        host, process = platform.node().replace("/", "_"), os.getpid()
        return Owner(host, process, _started(process) or ENDED, _space())

    @staticmethod
    def of(held: Path) -> "Owner":
        """Parses the owner from the name of its file in the lock; InputError for another name."""
        try:
            host, process, started, space = held.name.rsplit("-", 3)
            return Owner(host, int(process), int(started), space)
        except ValueError:
            raise InputError(f"{held}: is no file of a lock; move it elsewhere") from None

    @property
    def name(self) -> str:
        return f"{self.host}-{self.process}-{self.started}-{self.space}"

    def has_ended(self) -> bool | None:
        """Whether the process has ended; None if it runs elsewhere, or is hidden."""
        if self.space != _space():
            return None
        with suppress(PermissionError):
            try:
                os.kill(self.process, 0)
            except ProcessLookupError:
                return True
        found = _started(self.process)
        return None if found is None else found != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def _started(process: int) -> int | None:
    """Returns a process's start in ticks since boot, or ENDED; None if the process is hidden."""
    with suppress(OSError):
        stat = Path(f"/proc/{process}/stat").read_text()
        state, *fields = stat.rpartition(")")[2].split()  # its name may hold anything
        return ENDED if state in "ZX" else int(fields[18])
    return None


def _space() -> str:
    """Returns a short hash of the kernel's boot and of this process's container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        facts = f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  # it names no file
    except OSError:
        facts = platform.node()
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


class FolderLock(AbstractContextManager["FolderLock"]):
    """The right to write in a folder, from `take` until `release` or the end of a with block."""

    def __init__(self) -> None:
        self._own = Owner.here()
        self._place: Path | None = None
        self._released = threading.Event()

    def take(self, folder: Path, patient: bool = False) -> None:
        """Locks `folder`; a thread then renews the sign of life. A dead owner's lock is taken over
        with a message, after a minute without a sign of life if it ran on another host. Raises
        HeldError if a living process holds the folder; if `patient`, waits for that process.
        """
        place, new = unlinked(folder / LOCK), folder / f".{LOCK}-{self._own.name}"
        with disk_errors(), naming(place, new):
            new.mkdir()
            try:
                (new / self._own.name).touch(exist_ok=False)
                is_held = False
                while not is_held:  # whoever was in the way may be gone
                    try:
                        new.rename(place)
                        is_held = True
                    except OSError as error:
                        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                            raise
                        is_held = self._takes_over(place, new, patient)
            finally:
                with suppress(FileNotFoundError):
                    (new / self._own.name).unlink()
                    new.rmdir()
        self._place = place
        threading.Thread(target=self._beat, args=(place,), name="lock", daemon=True).start()

    def check(self) -> None:
        """Raises InputError if the lock is gone: others may take a suspended process for dead."""
        assert self._place is not None, "not taken"
        ends = "so this process stops writing there and ends"
        try:
            owners = os.listdir(self._place)  # noqa: PTH208  # NFS asks its server anew
        except OSError as error:
            gone = f"{self._place}: was moved or removed ({error.strerror}), {ends}"
            raise InputError(f"{gone}; resume the run") from None
        if self._own.name not in owners:
            taken = ", ".join(str(Owner.of(self._place / name)) for name in owners) or "others"
            raise InputError(
                f"{self._place.parent}: seemed abandoned and was taken over by {taken}, {ends}"
            )

    def _takes_over(self, place: Path, new: Path, patient: bool) -> bool:
        """Takes over a dead owner's lock; False if the owner released it or lives (`patient`)."""
        with suppress(FileNotFoundError):  # released, or another process was first
            for held in place.iterdir():
                owner = Owner.of(held)
                if self._is_dead(owner, held, new, patient):
                    os.utime(held, follow_symlinks=False)
                    held.rename(place / self._own.name)
                    say(f"{place.parent}: {owner} has ended; its lock is taken over")
                    return True
                if not patient:
                    raise HeldError(
                        f"{place.parent}: {owner} is writing there; wait until it has ended, or "
                        f"end it, or choose another folder"
                    )
                time.sleep(SHORT)
        return False

    def _is_dead(self, owner: Owner, held: Path, new: Path, patient: bool) -> bool:
        """Whether the owner has ended; if that is unknown, watches for its signs of life."""
        ended = owner.has_ended()
        if ended is not None:
            return ended
        if not patient:
            say(f"{held.parent.parent}: waiting up to {DEAD:.0f} s for a sign of life of {owner}")
        last = _changed(held)
        silent, start = max(0.0, _changed(new / self._own.name) - last), time.monotonic()
        while _changed(held) == last:
            watched = time.monotonic() - start
            if watched >= WATCHED and silent + watched >= DEAD:
                return True
            time.sleep(POLL)
        return False

    def _beat(self, place: Path) -> None:
        while not self._released.wait(BEAT):
            with suppress(OSError):  # `check` notices a lost lock before the next write
                os.utime(place / self._own.name, follow_symlinks=False)

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Releases the folder, if this lock holds it."""
        self._released.set()
        if self._place is not None:
            with suppress(OSError):  # the lock, or the whole folder, is gone
                (self._place / self._own.name).unlink()
                self._place.rmdir()


class LockWatch:
    """Watches, without the lock, whether a living process holds a folder."""

    def __init__(self, folder: Path) -> None:
        self._place = folder / LOCK
        self._last: tuple[Owner, float] | None = None
        self._since, self._moved = 0.0, False

    @property
    def owner(self) -> Owner | None:
        """The process that holds the folder, dead or alive."""
        with suppress(FileNotFoundError):
            return next(map(Owner.of, self._place.iterdir()), None)
        return None

    def lives(self) -> bool | None:
        """Whether a living process holds the folder; None while that is unknown of another host."""
        owner = self.owner
        ended = owner.has_ended() if owner else True
        if owner is None or ended is not None:
            return not ended
        changed = self._changed(owner)
        if changed is None:
            return None
        if (owner, changed) != self._last:
            self._moved = self._last is not None and owner == self._last[0]
            self._last, self._since = (owner, changed), time.monotonic()
        if time.monotonic() - self._since >= DEAD:
            return False
        return True if self._moved else None

    def silence(self) -> float | None:
        """Returns the seconds since the owner's last sign of life; None if there is no owner."""
        owner = self.owner
        changed = self._changed(owner) if owner else None
        return None if changed is None else max(0.0, time.time() - changed)

    def _changed(self, owner: Owner) -> float | None:
        with suppress(FileNotFoundError):  # released, or taken over, in this moment
            return _changed(self._place / owner.name)
        return None


def _changed(path: Path) -> float:
    """Returns a file's time of change in seconds; opening the file makes NFS ask its server."""
    with path.open("rb") as handle:
        return os.fstat(handle.fileno()).st_mtime
