"""The runs that are watched, looked at together."""

from collections.abc import Sequence
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.records.live.follow import RunFollower
from bigtrk.records.live.state import LiveRun, Status
from bigtrk.records.run_folder import short_names
from bigtrk.reports.live.shown import NAMES


class Watch:
    """Watches several runs, each of which may come later. labels: a short name of each.

    Raises:
        InputError: a folder is that of something else, or a record in it is broken.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._followers = {folder: RunFollower(folder, NAMES) for folder in folders}
        self.labels = tuple(short_names(list(self._followers)))
        for follower in self._followers.values():
            follower.look()

    def look(self) -> list[LiveRun]:
        """Returns the state of each run; one that became unreadable meanwhile leaves the others."""
        return [self._look(folder) for folder in self._followers]

    def _look(self, folder: Path) -> LiveRun:
        try:
            return self._followers[folder].look()
        except (InputError, OSError) as error:
            return LiveRun(folder, Status.UNREADABLE, reason=str(error))
