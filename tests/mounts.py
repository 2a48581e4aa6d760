"""File systems that tests mount, where this user may."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mounts an empty tmpfs at a new `folder`; skips the test of who may not."""
    folder.mkdir()
    if os.system(f"mount -t tmpfs -o {options} none {folder} 2>/dev/null"):
        pytest.skip("mounting a file system takes root")
    try:
        yield folder
    finally:
        # Files that a failed test still has open hold it, and pytest could not tidy up.
        os.system(f"umount --lazy {folder}")
