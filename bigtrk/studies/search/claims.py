"""The claims of searchers: a trial is seen to by the one that holds the lock of its claim."""

from dataclasses import dataclass, field
from pathlib import Path

from bigtrk.disk.files import disk_errors
from bigtrk.disk.folder_lock import FolderLock, HeldError, LockWatch


@dataclass
class Claims:
    """The claims of a search, in `folder`; several searchers see the same."""

    folder: Path
    _watches: dict[str, LockWatch] = field(default_factory=dict)

    def take(self, name: str) -> FolderLock | None:
        """Claims a trial; returns None where another searcher was first.

        Raises:
            InputError: the disk refuses.
        """
        place, claim = self.folder / name, FolderLock()
        with disk_errors():
            place.mkdir(parents=True, exist_ok=True)
        try:
            claim.take(place)
        except HeldError:
            return None
        return claim

    def seen_to(self, name: str) -> bool | None:
        """Says whether a living searcher sees to a trial; None: it is not known yet."""
        return self._watches.setdefault(name, LockWatch(self.folder / name)).lives()
