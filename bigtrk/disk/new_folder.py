"""Folders that are either absent or whole: filled under another name, then renamed."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigtrk.disk.files import sync_folder
from bigtrk.errors import InputError


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yields an empty folder to be filled; on success it is renamed to `out`, which is new or an
    empty folder. If the block raises, it is removed.

    Raises:
        InputError: something is at `out` already, and is left as it was.
    """
    if out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise InputError(f"{out}: holds something already; name a new folder, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.unfinished")
    if unfinished.exists():  # of a process that was killed
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    try:
        yield unfinished
        unfinished.rename(out)
        sync_folder(out.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
