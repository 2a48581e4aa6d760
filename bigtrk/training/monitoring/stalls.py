"""The ranks that keep others waiting, in the run's folder for whoever watches it."""

from pathlib import Path

from bigtrk.disk.folder_lock import FolderLock
from bigtrk.parallel.heartbeat import Verdict
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.watchdog import Told
from bigtrk.records.run import clear_stall, write_stall


def stall_notes(ranks: Ranks, folder: Path, lock: FolderLock) -> Told:
    """Returns what writes the verdict of the watchdog into a run's folder: rank 0's while it holds
    that, and the last one of whichever rank found it.
    """

    def note(verdict: Verdict | None, ends: bool) -> None:
        if ranks.is_first:
            lock.check()
        if verdict is None:
            clear_stall(folder)
        else:
            write_stall(folder, verdict.stalled, verdict.text, ends)

    return note
