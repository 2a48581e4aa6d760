"""The one exception that means "the user's input is at fault"."""


class InputError(ValueError):
    """Bad input: the message names the file or key, the row where there is one, and the remedy.

    The programs print it as one line and exit with status 2; every other exception is a defect
    and keeps its traceback.
    """
