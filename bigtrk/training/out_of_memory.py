"""Memory that runs out on one rank, which then cannot tell the others: they wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bigtrk.errors import InputError, RankError, reason
from bigtrk.tracing import place_of

# torch has no exception of its own for host memory that cannot be allocated.
_HOST = ("can't allocate memory", "not enough memory")


@contextmanager
def report_out_of_memory(
    who: str, remedy: str, kind: type[InputError] = RankError
) -> Iterator[None]:
    """Replaces an allocator's error inside the block by one that says `who` ran out of memory: a
    rank, or with another kind of error what can be told when the block has been left.

    Raises:
        InputError: of this kind, instead of the allocator's error, with place and remedy.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        place = place_of(error)
        raise kind(
            f"{who} ran out of memory{f' in {place}' if place else ''} ({reason(error)}); {remedy}"
        ) from None


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    known = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, known) or any(words in str(error) for words in _HOST)
