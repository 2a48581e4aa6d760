"""The user's cache, and a check that nobody else can change what is kept there."""

import os
import pwd
import stat
from pathlib import Path

_REMEDY = "set XDG_CACHE_HOME to a folder of yours"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ALL_USERS = ["0", "0", str(2**32 - 1)]  # of /proc/self/uid_map


def user_cache() -> Path:
    """Returns $XDG_CACHE_HOME, else ~/.cache. An empty or relative path counts as unset, as the XDG
    base directory specification has it: it would name another folder in each working folder.

    Raises:
        OSError: this user has no home folder.
    """
    own, home = (os.environ.get(variable, "") for variable in ("XDG_CACHE_HOME", "HOME"))
    for named, below in ((own, ""), (home, ".cache"), (_entered_home(), ".cache")):
        if Path(named).is_absolute():
            return Path(named, below)
    raise FileNotFoundError(f"user {os.getuid()} has no home folder: {_REMEDY}")


def _entered_home() -> str:
    """Returns the home by the system's list of users, which may lack the user of a container."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def cache_folder() -> Path:
    """Returns the folder of bigtrk in the user's cache, which may not be there yet.

    Raises:
        OSError: this user has no home folder.
    """
    return user_cache() / "bigtrk"


def make_private(folder: Path) -> None:
    """Makes an absolute `folder`, where it is missing, and refuses one that others could change.

    The folder and all folders and symbolic links on the way must belong to the user or to root, and
    nobody else may write to them; in those above it others may make files of their own (as in /tmp,
    by its sticky bit). Folders are made for the user alone.

    Raises:
        OSError: it cannot be made, or others could change it; the message has the remedy.
    """
    _check_way(folder, last=True)


def _check_way(folder: Path, last: bool) -> None:
    for place in (*reversed(folder.parents), folder):
        ends = last and place == folder
        state = _made(place)
        if stat.S_ISLNK(state.st_mode):
            _check_owner(place, state, _owners_above())
            place.stat()  # refuses what leads nowhere or in a circle
            _check_way(place.parent / place.readlink(), ends)
        elif not stat.S_ISDIR(state.st_mode):
            raise NotADirectoryError(f"{place}: is not a folder; remove it")
        else:
            _check_owner(place, state, _owners() if ends else _owners_above())
            if ends or not state.st_mode & stat.S_ISVTX:
                _check_mode(place, state)


def _made(place: Path) -> os.stat_result:
    try:
        return place.lstat()
    except FileNotFoundError:
        try:
            place.mkdir(0o700)
        except FileExistsError:  # another rank was faster
            pass
        except OSError as error:
            raise OSError(f"{place}: cannot be made ({error.strerror}); {_REMEDY}") from None
        return place.lstat()


def open_private(path: Path) -> int:
    """Opens for reading a file that the user or root owns and nobody else may write; returns its
    file descriptor.

    Raises:
        OSError: the file is missing, is a symbolic link or no regular file, belongs to somebody
            else, or others may write to it.
    """
    # Without O_NONBLOCK a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise PermissionError(f"{path}: is not a file; remove it")
        _check_owner(path, state, _owners())
        _check_mode(path, state)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _owners() -> set[int]:
    return {0, os.geteuid()}


def _owners_above() -> set[int]:
    """Returns the user and root, and also nobody in a container that does not know the host's
    users: there the folders of the host's root, such as /home, belong to nobody.
    """
    known = Path("/proc/self/uid_map")
    if not known.exists() or known.read_text().split() == _ALL_USERS:
        return _owners()
    return {*_owners(), int(Path("/proc/sys/kernel/overflowuid").read_text())}


def _check_owner(place: Path, state: os.stat_result, owners: set[int]) -> None:
    if state.st_uid not in owners:
        raise PermissionError(
            f"{place}: belongs to user {state.st_uid}, who could change what is there; {_REMEDY}"
        )


def _check_mode(place: Path, state: os.stat_result) -> None:
    if state.st_mode & _OTHERS_WRITE:
        raise PermissionError(f"{place}: others may write to it; chmod go-w it, or {_REMEDY}")
