"""Memory that runs out on one rank, which then cannot tell the others: they wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError, RankError, reason
from bigtrk.tracing import place_of

VIEWER = "https://docs.pytorch.org/memory_viz"
# torch has no exception of its own for host memory that cannot be allocated.
_HOST = ("can't allocate memory", "not enough memory")
# An entry takes some kilobytes, for the stack; some steps of a model in chunks have as many.
_MOST_ALLOCATIONS = 100_000


@contextmanager
def report_out_of_memory(
    who: str, remedy: str, kind: type[InputError] = RankError, snapshot: Path | None = None
) -> Iterator[None]:
    """Replaces an allocator's error inside the block by one that says `who` ran out of memory: a
    rank, or with another kind of error what can be told when the block has been left.

    snapshot: where to write what an accelerator's memory held, if it was that which ran out.

    Raises:
        InputError: of this kind, instead of the allocator's error, with place and remedy.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        place = place_of(error)
        # The error still holds the frames that failed, and with them most of what filled memory.
        held = _write_snapshot(snapshot) if isinstance(error, torch.OutOfMemoryError) else ""
        raise kind(
            f"{who} ran out of memory{f' in {place}' if place else ''} ({reason(error)}); {remedy}"
            f"{held}"
        ) from None


@contextmanager
def allocations_noted(device: torch.device) -> Iterator[None]:
    """Notes inside the block which lines allocate memory of an accelerator, for a snapshot."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.memory._record_memory_history(max_entries=_MOST_ALLOCATIONS)
    try:
        yield
    finally:
        torch.cuda.memory._record_memory_history(None)


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    known = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, known) or any(words in str(error) for words in _HOST)


def _write_snapshot(path: Path | None) -> str:
    """Writes what an accelerator's allocator holds, and says where, or why it could not."""
    if path is None:
        return ""
    try:
        write_atomically(path, lambda file: torch.cuda.memory._dump_snapshot(str(file)))
    except (OSError, RuntimeError, InputError) as error:
        return f". What held it could not be written ({reason(error)})"
    return f". What held it is in {path}, for {VIEWER}"
