"""The errors that end a program in one line instead of a traceback."""

import errno
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_REASON = 400
AGAINST_DIVERGENCE = (
    "lower optimizer.lr or set optimizer.gradient_clipping, by 'bigtrk resume RUN "
    "optimizer.lr=VALUE' or in a new run"
)
# What to do about errors of the disk.
_REMEDIES = {
    errno.ENOENT: "; check this path",
    errno.EEXIST: "; it is not a folder: name another",
    errno.ENOTDIR: "; a part of the path is a file: name another",
    errno.EACCES: "; change its permissions, or name another",
    errno.EROFS: "; name another folder",
    errno.ENOSPC: "; free some space, or name another disk",
    errno.EDQUOT: "; free some space, or name another disk",
}


class InputError(ValueError):
    """Bad input. The message names the file or key, the row if there is one, and the remedy.

    The programs print it as one line and exit with status 2; every other exception is a defect and
    keeps its traceback.
    """


class RankError(InputError):
    """An error of one rank that it cannot tell the ranks waiting for it; this rank prints it."""


class StoppedError(Exception):
    """A run was asked to stop, and has stopped after saving; it can be resumed.

    Programs exit with status 75, EX_TEMPFAIL of sysexits.h: try again.
    """


@contextmanager
def damage_told(problem: str, remedy: str) -> Iterator[None]:
    """Turns any error of the block into an InputError; libraries raise errors of many kinds on a
    damaged file.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{problem} ({reason(error)}); {remedy}") from None


def disk_reason(error: OSError) -> str:
    """Writes an OSError as one line: the file, what is wrong, and the remedy if known."""
    unnamed = "the output: " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    named = unnamed if error.filename is None else f"{error.filename}: "
    return f"{named}{error.strerror or error}{_REMEDIES.get(error.errno or 0, '')}"


def shell_word(path: Path) -> str:
    """Quotes a path for a command in a message, so that it can be typed as shown."""
    return shlex.quote(str(path))


def number_of(number: float, noun: str, shown: str | None = None) -> str:
    """Writes a number with its noun: "1 event", "12,000 events". shown: replaces the digits."""
    return f"{f'{number:,}' if shown is None else shown} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Returns `text` as one line that is safe to print: unprintable characters are escaped."""
    if text.isprintable():  # pages are of megabytes
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Applies `printable` to each line of `text`."""
    return "\n".join(map(printable, text.split("\n")))


def reason(error: Exception) -> str:
    """Shortens an error's text for a message: one printable line of limited length."""
    return one_line(str(error))


def one_line(text: str) -> str:
    """Shortens any text for a message: printable, without line breaks."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]} ..."
