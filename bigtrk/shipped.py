"""Files shipped in the package: where they are, and how a user names them."""

from pathlib import Path

_PACKAGE = Path(__file__).parent
TRAIN = _PACKAGE / "train.py"
DEFAULT = _PACKAGE / "configs" / "default.yaml"


def shipped(name: str) -> Path:
    """Returns the path of a file shipped in the package; in a checkout, the short relative one."""
    path = _PACKAGE / name
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
