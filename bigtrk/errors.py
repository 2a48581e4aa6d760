"""The one exception that means "the user's input is at fault"."""

LONGEST_REASON = 400


class InputError(ValueError):
    """Bad input: the message names the file or key, the row where there is one, and the remedy.

    The programs print it as one line and exit with status 2; every other exception is a defect
    and keeps its traceback.
    """


def reason(error: Exception) -> str:
    """What a library says of bad input, as part of a message: one printable line, not too long."""
    words = " ".join(str(error).split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]} ..."
