"""DeepSpeed's compilation at first use, made safe against jobs that were killed in it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.utils.cpp_extension import get_default_build_root

from bigtrk.console import say
from bigtrk.disk.cache import user_cache
from bigtrk.disk.files import open_to_append


def extension_folder() -> Path:
    """Returns the folder where torch, in this process, keeps what it compiles for this user.

    Where the variables are empty, the cache's is relative or there is no home, torch would load
    libraries from the working folder.

    Raises:
        OSError: this user has no home folder.
    """
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    if named:
        return Path(named)
    os.environ.pop("TORCH_EXTENSIONS_DIR", None)
    os.environ["XDG_CACHE_HOME"] = str(user_cache())
    return Path(get_default_build_root())


@contextmanager
def one_compiler(folder: Path) -> Iterator[None]:
    """Lets one process at a time compile DeepSpeed's operations in `folder`.

    torch's own lock is a file that a killed job leaves behind, and all later jobs wait for it for
    ever. The lock taken here dies with its process; under it such a file is nobody's.

    Raises:
        OSError: `folder` cannot be made; the message has the remedy.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"{folder}: DeepSpeed cannot keep there what it compiles ({error.strerror}); set "
            f"TORCH_EXTENSIONS_DIR to a folder of yours"
        ) from None
    with open_to_append(folder / "bigtrk.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob("**/deepspeed_*/lock"):
            left.unlink(missing_ok=True)
        if not any(folder.glob("**/deepspeed_*/*.so")):
            say("DeepSpeed compiles an operation at its first use; this takes about a minute")
        yield
