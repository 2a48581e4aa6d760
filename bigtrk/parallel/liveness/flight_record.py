"""The flight record of a rank: the collectives that it began lately, and which of them have ended.

torch keeps it, of the last 2000 unless TORCH_FR_BUFFER_SIZE says otherwise. A run that stalls
leaves those of its ranks, for torch's own `torchfrtrace`, which finds where they part.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d

from bigtrk.disk.files import write_atomically

LONGEST = 2.0  # s; asking a device that hangs may not return
_c10d: Any = _distributed_c10d  # whose stubs lack the recorder
_folders: list[Path] = []  # a process has one recorder, and watchdogs know no runs


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Has the records left in `folder`, a file for each rank, if ranks stall inside the block."""
    _folders.append(folder)
    try:
        yield
    finally:
        _folders.remove(folder)


def place() -> Path | None:
    """Returns the folder for records; None outside of a run."""
    return _folders[-1] if _folders else None


def write(rank: int) -> None:
    """Writes this rank's record, if there is a place for it and it can be had soon."""
    folder = place()
    if folder is None:
        return
    # torchfrtrace reads the rank's number at the end of the name. A thread that fails prints why.
    thread = threading.Thread(target=_write, args=(folder / f"rank{rank}",), daemon=True)
    thread.start()
    thread.join(LONGEST)


def _write(path: Path) -> None:
    record = _recorded()
    write_atomically(path, lambda file: file.write_bytes(record))


def _recorded() -> bytes:
    """Returns torch's record of what the world's backend does."""
    over_nccl = dist.is_initialized() and dist.get_backend() == "nccl"
    dump = _c10d._dump_nccl_trace if over_nccl else _c10d._dump_fr_trace
    recorded: bytes = dump(includeCollectives=True, includeStackTraces=True, onlyActive=False)
    return recorded
