"""Files of the package, as a user names them."""

from pathlib import Path

import bigtrk


def shipped(name: str) -> Path:
    """Returns a file of the package: by the short path that one types in a checkout, else by the
    full one.
    """
    path = Path(bigtrk.__file__).parent / name
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
