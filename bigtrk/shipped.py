"""Files of the package: where they lie, and how a user names them."""

from pathlib import Path

_PACKAGE = Path(__file__).parent
TRAIN = _PACKAGE / "train.py"
DEFAULT = _PACKAGE / "configs" / "default.yaml"


def shipped(name: str) -> Path:
    """Returns a file of the package: by the short path that one types in a checkout, else by the
    full one.
    """
    path = _PACKAGE / name
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
